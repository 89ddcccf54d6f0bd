# Tests of prove.ps1, with a runner that is made for each case: see TestSetup.ps1 for what they need.
Describe 'prove.ps1' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        $prove = "$PSScriptRoot/prove.ps1"
        $shell = (Get-Process -Id $PID).Path
        if ([System.IO.Path]::GetFileNameWithoutExtension($shell) -eq 'dotnet') {
            $line = "exec '$shell' '$([System.Environment]::GetCommandLineArgs()[0])' `"`$@`""
            $shell = [System.IO.Path]::Combine([string] $TestDrive, 'shell')
            [System.IO.File]::WriteAllText($shell, "#!/bin/sh`n$line`n")
            [System.IO.File]::SetUnixFileMode($shell, 493)
        }
        # A runner that makes items true, one file each but for one that it forgets, and wants a restart before the last one.
        $runner = @'
param([string] $Source)
. "$PSScriptRoot/report.ps1"
. "$PSScriptRoot/files.ps1"
$made = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText("$PSScriptRoot/../node.json"))
[void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($StateFile))
$known = [System.IO.File]::Exists($StateFile)
foreach ($item in $made.items) {
    $there = [System.IO.Path]::Combine($Root, $item.id)
    if ([System.IO.File]::Exists($there)) {
        if (-not $known) { Send-Report $item.id 'done' 0 'was true already' }
        continue
    }
    if ($item.kind -eq 'reboot') {
        [System.IO.File]::WriteAllText($there, '')
        Send-Report $item.id 'reboot' 0 'restart 1 of 3'
        exit 1003
    }
    Send-Report $item.id 'started' 0 'attempt 1 of 3'
    Start-Sleep -Milliseconds 700
    if ($item.id -ne 'forgets') { [System.IO.File]::WriteAllText($there, '') }
    Send-Report $item.id 'done' 0 'attempt 1'
}
[System.IO.File]::WriteAllText($StateFile, '')
Send-Report 'plan' 'finished' 0 'all'
exit 0
'@.Replace('. "$PSScriptRoot/report.ps1"', "`$Root = 'ROOT'`n. `"`$PSScriptRoot/report.ps1`"")
        $plan = '{"limits": {"minutes": 45}, "items": [ITEMS, {"id": "clock", "kind": "script"}, {"id": "settle", "kind": "reboot"}, {"id": "b", "kind": "file"}, {"id": "join", "kind": "command"}]}'
    }
    BeforeEach {
        $from = [System.IO.Path]::Combine([string] $TestDrive, [System.Guid]::NewGuid().ToString())
        $root = [System.IO.Path]::Combine($from, 'capw')
        $make = {
            param($items)
            [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::Combine($from, 'runner'))
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($from, 'runner', 'run.ps1'), $runner.Replace('ROOT', $root))
            foreach ($part in @('report.ps1', 'files.ps1')) { [System.IO.File]::Copy("$PSScriptRoot/$part", [System.IO.Path]::Combine($from, 'runner', $part)) }
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($from, 'node.json'), $plan.Replace('ITEMS', $items))
        }
        Mock Register-ScheduledTask
        Mock Unregister-ScheduledTask
        Mock New-ScheduledTaskAction
        Mock New-ScheduledTaskTrigger
        Mock New-ScheduledTaskPrincipal
        Mock New-ScheduledTaskSettingsSet
        Mock Get-CimInstance
        Mock Invoke-CimMethod
        Mock Get-ItemProperty { New-Object PSObject -Property @{ ProductName = 'Windows'; InstallationType = 'Server'; CurrentBuildNumber = '20348'; UBR = 1; Release = 528449 } }
    }

    It 'kills at each item, goes on after a restart, and looks at everything again' {
        & $make '{"id": "a", "kind": "file"}, {"id": "forgets", "kind": "registry"}'
        & $prove -From $from -Root $root -Shell $shell
        Should -Invoke Invoke-CimMethod -Times 1 -Exactly -ParameterFilter { $MethodName -eq 'Win32Shutdown' -and $Arguments.Flags -eq 6 }
        Should -Invoke Register-ScheduledTask -Times 1 -Exactly
        $table = @(& $prove -From $from -Root $root -Shell $shell -Resume)
        Should -Invoke Unregister-ScheduledTask -Times 1 -Exactly
        $table[2, 3, 5, 6, 7] -replace ' +', ' ' | Should -Be @(
            'ITEM KIND KILLED BEGUN END AGAIN MESSAGE', 'a file 1 2 done true ', 'settle reboot 0 0 done true ', 'b file 1 2 done true ',
            '4 items, 3 kills, 1 restarts, 1 wrong; last report: plan finished 0 all')
        $table[4] | Should -Match '^forgets +registry +1 +\d+ +done +NOT TRUE'
        [System.IO.File]::ReadAllLines([System.IO.Path]::Combine($from, 'proof.txt')).Count | Should -Be $table.Count
    }
    It 'is not for a machine that had a plan before' {
        & $make '{"id": "a", "kind": "file"}'
        [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::Combine($root, 'state'))
        { & $prove -From $from -Root $root -Shell $shell } | Should -Throw '*carried out a plan before*'
    }
}
