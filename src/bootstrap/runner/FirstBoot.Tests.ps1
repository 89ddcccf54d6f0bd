# Tests of capw-firstboot.ps1: see TestSetup.ps1 for what they need.
Describe 'capw-firstboot.ps1' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        $script = "$PSScriptRoot/capw-firstboot.ps1"
        $windows = [System.IO.Path]::Combine($Root, 'Windows')
        $log = [System.IO.Path]::Combine($windows, 'Temp', 'capw-firstboot.log')
        $drive = [System.IO.Path]::Combine($Root, 'drive') + [System.IO.Path]::DirectorySeparatorChar
        $ran = [System.IO.Path]::Combine($Root, 'ran')
        foreach ($directory in @([System.IO.Path]::GetDirectoryName($log), $drive)) { [void] [System.IO.Directory]::CreateDirectory($directory) }
        # They are defined in the script, so that here is nothing yet to be mocked.
        foreach ($name in @('Get-Drive', 'Restart-Windows')) { $null = New-Item -Path "function:global:$name" -Value { $null } -Force }
        $active = 'HKLM:\SYSTEM\CurrentControlSet\Control\ComputerName\ActiveComputerName ComputerName'
        $next = 'HKLM:\SYSTEM\CurrentControlSet\Control\ComputerName\ComputerName ComputerName'
        $end = { param($code) [System.IO.File]::WriteAllText("${drive}capw.ps1", "param(`$Source) [System.IO.File]::AppendAllText('$ran', `$Source); exit $code") }
    }
    BeforeEach {
        foreach ($file in @($log, $ran, [System.IO.Path]::Combine($Root, 'name-asked'))) { [System.IO.File]::Delete($file) }
        $values = @{
            'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State ImageState' = 'IMAGE_STATE_COMPLETE'
            'HKLM:\SYSTEM\Setup SystemSetupInProgress' = '0'
        }
        $values[$active] = 'WIN-1'
        $values[$next] = 'WIN-1'
        $drives = New-Object System.Collections.ArrayList
        [void] $drives.Add((New-Object PSObject -Property @{ IsReady = $false; VolumeLabel = ''; Name = 'A:\' }))
        [void] $drives.Add((New-Object PSObject -Property @{ IsReady = $true; VolumeLabel = 'unattendCD'; Name = $drive }))
        Mock Get-ItemProperty {
            $found = New-Object PSObject -Property @{ other = '' }
            foreach ($entry in @($values.Keys | Where-Object { $_.StartsWith("$LiteralPath ") })) {
                $found.PSObject.Properties.Add((New-Object System.Management.Automation.PSNoteProperty($entry.Substring("$LiteralPath ".Length), $values[$entry])))
            }
            $found
        }
        Mock Get-Drive { $drives.ToArray() }
        Mock Start-Sleep
        Mock Restart-Windows
        Mock Rename-Computer { $values[$next] = $NewName }
        Mock Protect-Directory
        & $end 0
        [System.IO.File]::WriteAllText("${drive}meta-data", '{"instance-id": "1", "local-hostname": "win-1"}')
    }

    Context 'a start' {
        It 'runs what is on the drive' {
            & $script -Root $Root -Windows $windows
            $LASTEXITCODE | Should -Be 0
            [System.IO.File]::ReadAllText($ran) | Should -Be 'task'
            [System.IO.File]::ReadAllText($log) | Should -Match 'the loader ended with 0'
            Should -Invoke Rename-Computer -Times 0 -Exactly
        }
        It 'tries again itself' {
            & $end 1002
            & $script -Root $Root -Windows $windows
            $LASTEXITCODE | Should -Be 1
            [System.IO.File]::ReadAllText($ran) | Should -Be 'tasktasktasktasktask'
            Should -Invoke Start-Sleep -Times 4 -Exactly -ParameterFilter { $Seconds -eq 60 }
        }
        It 'goes on when an attempt has failed' {
            Mock Get-Drive { if ($values.Count -eq 4) { $values['later'] = 1; throw 'no drives yet' } else { $drives.ToArray() } }
            & $script -Root $Root -Windows $windows
            $LASTEXITCODE | Should -Be 0
            [System.IO.File]::ReadAllText($ran) | Should -Be 'task'
            [System.IO.File]::ReadAllText($log) | Should -Match 'no drives yet'
        }
        It 'waits until Setup is over' {
            $values.Remove('HKLM:\SYSTEM\Setup SystemSetupInProgress')
            Mock Start-Sleep { $values['HKLM:\SYSTEM\Setup SystemSetupInProgress'] = '0' }
            & $script -Root $Root -Windows $windows
            [System.IO.File]::Exists($ran) | Should -Be $true
            Should -Invoke Start-Sleep -Times 1 -Exactly
        }
        It 'does nothing without a drive' {
            $drives.Clear()
            & $script -Root $Root -Windows $windows
            $LASTEXITCODE | Should -Be 0
            Should -Invoke Start-Sleep -Times 60 -Exactly
            [System.IO.File]::ReadAllText($log) | Should -Match 'there is no drive with the label unattendCD'
        }
        It 'switches Administrator off' {
            Mock Get-CimInstance { foreach ($sid in @('S-1-5-21-1-2-3-501', 'S-1-5-21-1-2-3-500')) { New-Object PSObject -Property @{ SID = $sid } } }
            Mock Disable-LocalUser
            & $script -Root $Root -Windows $windows -DisableAdministrator
            Should -Invoke Disable-LocalUser -Times 1 -Exactly -ParameterFilter { "$SID" -eq 'S-1-5-21-1-2-3-500' }
        }
        It 'says nothing when it cannot' {
            [System.IO.File]::Delete($log)
            & $script -Root $Root -Windows "$windows-none"
            $LASTEXITCODE | Should -Be 0
        }
    }

    Context 'the name of the machine' {
        It 'is given with one restart' {
            $values[$active] = 'OLD'
            $values[$next] = 'OLD'
            & $script -Root $Root -Windows $windows
            $LASTEXITCODE | Should -Be 0
            Should -Invoke Rename-Computer -Times 1 -Exactly -ParameterFilter { $NewName -eq 'win-1' }
            Should -Invoke Restart-Windows -Times 1 -Exactly
            [System.IO.File]::Exists($ran) | Should -Be $false
        }
        It 'is restarted for again when the restart did not happen' {
            $values[$active] = 'OLD'
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($Root, 'name-asked'), 'win-1')
            & $script -Root $Root -Windows $windows
            Should -Invoke Rename-Computer -Times 0 -Exactly
            Should -Invoke Restart-Windows -Times 1 -Exactly
            [System.IO.File]::Exists($ran) | Should -Be $false
        }
        It 'is not fought for' {
            $values[$active] = 'OLD'
            $values[$next] = 'OLD'
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($Root, 'name-asked'), 'win-1')
            & $script -Root $Root -Windows $windows
            Should -Invoke Restart-Windows -Times 0 -Exactly
            [System.IO.File]::Exists($ran) | Should -Be $true
        }
        It 'is not noted as asked for when that failed' {
            $values[$active] = 'OLD'
            $values[$next] = 'OLD'
            Mock Rename-Computer { throw 'the name is taken' }
            & $script -Root $Root -Windows $windows
            $LASTEXITCODE | Should -Be 1
            Should -Invoke Rename-Computer -Times 5 -Exactly
        }
        It 'may be left to Windows' {
            [System.IO.File]::WriteAllText("${drive}meta-data", '{"instance-id": "1"}')
            & $script -Root $Root -Windows $windows
            [System.IO.File]::Exists($ran) | Should -Be $true
        }
    }

    Context 'the installation' {
        BeforeEach {
            $tasks = @{}
            Mock New-ScheduledTaskAction { "$Execute $Argument" }
            Mock New-ScheduledTaskTrigger { $AtStartup }
            Mock New-ScheduledTaskPrincipal { $UserId }
            Mock New-ScheduledTaskSettingsSet { "$ExecutionTimeLimit $Priority" }
            Mock Register-ScheduledTask {
                $tasks[$TaskName] = "$Action"
                $tasks.Limit = $Settings
            }
            $powershell = [System.IO.Path]::Combine($windows, 'System32', 'WindowsPowerShell', 'v1.0', 'powershell.exe')
            Mock Start-ScheduledTask { $tasks.Started = $TaskName }
            $setup = [System.IO.Path]::Combine($windows, 'Setup', 'Scripts', 'SetupComplete.cmd')
        }
        It 'makes a copy, a task and a second way, once' {
            foreach ($time in @(1, 2)) {
                & $script -Install -Root $Root -Windows $windows
                $LASTEXITCODE | Should -Be 0
            }
            $copy = [System.IO.Path]::Combine($Root, 'capw-firstboot.ps1')
            [System.IO.File]::ReadAllText($copy) | Should -Be ([System.IO.File]::ReadAllText($script))
            $tasks['capw-firstboot'] | Should -Be "$powershell -NoProfile -NonInteractive -ExecutionPolicy RemoteSigned -File $copy"
            $tasks.Limit | Should -Be '00:00:00 4'
            $lines = @([System.IO.File]::ReadAllLines($setup) | Where-Object { $_ -match '-Install -Start$' })
            $lines.Count | Should -Be 1
            $lines[0].StartsWith("$powershell ") | Should -Be $true
            $tasks.ContainsKey('Started') | Should -Be $false
            Should -Invoke Protect-Directory -Times 2 -Exactly
        }
        It 'writes its copy through the caches to the disk' {
            $calls = New-Object System.Collections.ArrayList
            $stream = New-NotedStream $calls
            Mock New-Object { [void] $calls.Add([string] $ArgumentList[5]); $stream } -ParameterFilter { $TypeName -eq 'System.IO.FileStream' }
            & $script -Install -Root $Root -Windows $windows
            $length = [System.IO.File]::ReadAllBytes($script).Length
            [string]::Join('|', $calls.ToArray()) | Should -Be "WriteThrough|Write $length|Flush True|Dispose "
        }
        It 'may start at once, and be told more' {
            & $script -Install -Start -DisableAdministrator -Root $Root -Windows $windows
            $tasks.Started | Should -Be 'capw-firstboot'
            $tasks['capw-firstboot'] | Should -Match '-DisableAdministrator$'
        }
        It 'never makes Setup fail' {
            Mock Register-ScheduledTask { throw 'the service does not run' }
            & $script -Install -Root $Root -Windows $windows
            $LASTEXITCODE | Should -Be 0
            [System.IO.File]::ReadAllText($log) | Should -Match 'the service does not run'
        }
    }
}
