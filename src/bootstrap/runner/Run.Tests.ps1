# Tests of run.ps1 and plan.ps1, with plans of files below a directory of their own: see TestSetup.ps1 for what they need.
Describe 'run.ps1' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        $run = "$PSScriptRoot/run.ps1"
        $marks = [System.IO.Path]::Combine($Root, 'marks')
        $path = { param($name) [System.IO.Path]::Combine($marks, $name) }
        # A step that makes a file, once it is allowed to.
        $step = {
            param($id)
            return @{ id = $id; kind = 'command'; code = 18; seconds = 60; attempts = 2; argv = @('make', $id); directory = $Root; check = @{ file = & $path $id } }
        }
        $write = {
            param($items)
            $all = @{ planVersion = 1; limits = @{ reboots = 1; minutes = 45 }; report = @('serial:COM1'); redact = @('hush'); items = @($items) }
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($Payload, 'node.json'), (ConvertTo-Json -InputObject $all -Depth 12))
        }
        # Item, state and code of the lines that were said.
        $lines = { [string]::Join(' | ', @($said.ToArray() | ForEach-Object { [string]::Join(' ', $_.Split(' ')[3..5]) })) }
    }
    BeforeEach {
        foreach ($directory in @($marks, $MarkerDirectory)) {
            if ([System.IO.Directory]::Exists($directory)) { [System.IO.Directory]::Delete($directory, $true) }
            [void] [System.IO.Directory]::CreateDirectory($directory)
        }
        foreach ($file in @($StateFile, "$StateFile.old", $ReportFile, $LogFile, [System.IO.Path]::Combine($StateDirectory, 'finished'))) {
            [System.IO.File]::Delete($file)
        }
        $said = New-Object System.Collections.ArrayList
        $programs = New-Object System.Collections.ArrayList
        # Programs that fail: word to number of times.
        $faults = @{}
        Mock Send-Serial { [void] $said.Add($Line) }
        Mock Get-BootId { '7' }
        Mock Start-Sleep
        Mock Test-RestartWanted { $false }
        Mock Invoke-Program {
            [void] $programs.Add([string]::Join(' ', $Argv))
            $word = $Argv[$Argv.Count - 1]
            if ($faults.ContainsKey($word) -and $faults[$word] -ne 0) {
                $faults[$word]--
                throw "$word ended with 1"
            }
            if ($Argv[0] -eq 'make') { [System.IO.File]::WriteAllText((& $path $word), '') }
        }
    }

    Context 'a plan' {
        It 'is carried out once' {
            & $write @((& $step 'one'), (& $step 'two'))
            & $run -Payload $Payload
            $LASTEXITCODE | Should -Be 0
            & $lines | Should -Be 'one started 0 | one done 0 | two started 0 | two done 0 | plan finished 0'
            & $run -Payload $Payload
            $LASTEXITCODE | Should -Be 0
            $said.Count | Should -Be 5
            $said[4] | Should -Match '^capw1 5 1 plan finished 0 [0-9a-f]{8} 2 items are true$'
            [System.IO.File]::ReadAllText($LogFile) | Should -Match 'finished already'
        }
        It 'finds what was true before' {
            [System.IO.File]::WriteAllText((& $path 'one'), '')
            & $write @((& $step 'one'))
            & $run -Payload $Payload
            & $lines | Should -Be 'one done 0 | plan finished 0'
            $programs.Count | Should -Be 0
        }
        It 'does not say again what it has said' {
            & $write @((& $step 'one'), (& $step 'two'))
            $faults['two'] = 2
            & $run -Payload $Payload
            & $lines | Should -Be 'one started 0 | one done 0 | two started 0 | two retry 18 | two started 0 | two failed 18 | plan failed 18'
            $LASTEXITCODE | Should -Be 0
            $said.Clear()
            # Another runner of the same start of Windows.
            & $run -Payload $Payload
            $LASTEXITCODE | Should -Be 0
            $said.Count | Should -Be 0
            Mock Get-BootId { '8' }
            & $run -Payload $Payload
            & $lines | Should -Be 'two started 0 | two done 0 | plan finished 0'
        }
        It 'remembers which processes have not seen a change' {
            Mock Get-Service { New-Object PSObject -Property @{ Status = 'Running' } }
            $process = @{ Now = '1 1' }
            Mock Get-ServiceProcess { $process.Now }
            Mock Set-RunningItem { $process.Now = '2 2' }
            $reader = @{ id = 'reader'; kind = 'running'; code = 75; seconds = 1; attempts = 1; name = 'kubelet'; after = @('one') }
            & $write @((& $step 'one'), $reader)
            & $run -Payload $Payload
            & $lines | Should -Be 'one started 0 | one done 0 | reader started 0 | reader done 0 | plan finished 0'
            # Another definition that is true already changes nothing.
            $item = & $step 'one'
            $item.seconds = 61
            & $write @($item, $reader)
            & $run -Payload $Payload
            (Get-Marker 'one').processes.kubelet | Should -Be '1 1'
            Should -Invoke Set-RunningItem -Times 1 -Exactly
        }
        It 'starts a service again after a change during which the runner was killed' {
            Mock Get-Service { New-Object PSObject -Property @{ Status = 'Running' } }
            Mock Get-ServiceProcess { '1 1' }
            Mock Set-RunningItem
            Set-Marker 'one' '' @{}
            [System.IO.File]::WriteAllText((& $path 'one'), '')
            & $write @((& $step 'one'), @{ id = 'reader'; kind = 'running'; code = 75; seconds = 1; attempts = 1; name = 'kubelet'; after = @('one') })
            & $run -Payload $Payload
            & $lines | Should -Be 'one done 0 | reader started 0 | reader failed 75 | plan failed 75'
            Should -Invoke Set-RunningItem -Times 1 -Exactly
        }
        It 'undoes first what a killed runner has begun' {
            $item = & $step 'one'
            $item.undo = @('undo', 'one')
            & $write @($item)
            Set-Marker 'one' '' @{}
            & $run -Payload $Payload
            [string]::Join(' | ', $programs.ToArray()) | Should -Be 'undo one | make one'
            & $lines | Should -Be 'one started 0 | one done 0 | plan finished 0'
        }
        It 'only cleans up once all is done' {
            $clean = @{ id = 'clean'; kind = 'absent'; code = 15; seconds = 1; attempts = 1; paths = @((& $path 'secret')) }
            & $write @((& $step 'one'), $clean)
            [System.IO.File]::WriteAllText((& $path 'secret'), '')
            Mock Set-AbsentItem { throw 'it is in use' }
            & $run -Payload $Payload
            [System.IO.File]::Delete((& $path 'secret'))
            [System.IO.File]::Delete((& $path 'one'))
            $said.Clear()
            Mock Get-BootId { '8' }
            & $run -Payload $Payload
            & $lines | Should -Be 'clean done 0 | plan finished 0'
        }
        It 'only cleans up when the state was lost after the file that says that all is done' {
            $source = [System.IO.Path]::Combine($Payload, 'success')
            [System.IO.File]::WriteAllText($source, 'success')
            $success = @{
                id = 'sentinel'; kind = 'file'; code = 15; seconds = 1; attempts = 1; path = (& $path 'success'); source = 'success'
                sha256 = (Get-TextDigest 'success'); access = 'inherited'
            }
            $clean = @{ id = 'clean'; kind = 'absent'; code = 15; seconds = 1; attempts = 1; paths = @((& $path 'secret')) }
            & $write @((& $step 'one'), $success, $clean)
            & $run -Payload $Payload
            & $lines | Should -Match ' \| clean done 0 \| plan finished 0$'
            # Another plan does not take it for its own.
            foreach ($file in @($StateFile, "$StateFile.old", (& $path 'one'))) { [System.IO.File]::Delete($file) }
            $said.Clear()
            & $write @((& $step 'one'), (& $step 'two'), $success, $clean)
            & $run -Payload $Payload
            & $lines | Should -Be 'one started 0 | one done 0 | two started 0 | two done 0 | plan finished 0'
            # A power cut before that was noted.
            foreach ($file in @($StateFile, "$StateFile.old")) { [System.IO.File]::WriteAllText($file, "`0`0`0") }
            foreach ($file in @((& $path 'one'), [System.IO.Path]::Combine($StateDirectory, 'finished'))) { [System.IO.File]::Delete($file) }
            $programs.Clear()
            & $run -Payload $Payload
            $programs.Count | Should -Be 0
            $said[$said.Count - 1] | Should -Match ' plan finished 0 '
        }
        It 'says how a service ended that did not stay' {
            Mock Test-RunningItem { $false }
            Mock Set-RunningItem
            Mock Get-ServiceEnd { "exit code 7 of $Name" }
            & $write @(@{ id = 'kubelet'; kind = 'running'; code = 75; seconds = 1; attempts = 1; name = 'kubelet' })
            & $run -Payload $Payload
            $said[1] | Should -Match 'kubelet failed 75 [0-9a-f]{8} it is still not true after it was done: exit code 7 of kubelet$'
        }
        It 'undoes what a failed attempt left, and says why it failed' {
            $item = & $step 'one'
            $item.undo = @('undo', 'one')
            & $write @($item)
            $faults['one'] = 2
            & $run -Payload $Payload
            [string]::Join(' | ', $programs.ToArray()) | Should -Be 'make one | undo one | make one'
            $said[1] | Should -Match 'one retry 18 [0-9a-f]{8} one ended with 1$'
            [System.IO.File]::ReadAllText($LogFile) | Should -Match 'undo of one: one ended with 1'
        }
        It 'goes on after an optional item that fails' {
            $item = & $step 'one'
            $item.optional = $true
            $item.attempts = 1
            & $write @($item, (& $step 'two'))
            $faults['one'] = -1
            & $run -Payload $Payload
            & $lines | Should -Be 'one started 0 | one warned 18 | two started 0 | two done 0 | plan finished 0'
        }
        It 'leaves out what is not needed any more' {
            $item = & $step 'one'
            $item.unless = @{ not = @{ file = & $path 'none' } }
            & $write @($item)
            & $run -Payload $Payload
            & $lines | Should -Be 'plan finished 0'
        }
        It 'is not ended by a marker that cannot be written for a while' {
            & $write @((& $step 'one'), (& $step 'two'))
            $held = @{ Times = 1 }
            $real = (Get-Command -Name 'Set-Marker').ScriptBlock
            Mock Set-Marker {
                if ($Id -eq 'one' -and $held.Times -gt 0) {
                    $held.Times--
                    throw 'it is in use'
                }
                & $real $Id $Digest $Processes
            }
            & $run -Payload $Payload
            # Nothing is done that a kill could leave unnoticed.
            & $lines | Should -Be 'one started 0 | one retry 18 | one started 0 | one done 0 | two started 0 | two done 0 | plan finished 0'
            [string]::Join(' | ', $programs.ToArray()) | Should -Be 'make one | make two'
            $LASTEXITCODE | Should -Be 0
        }
        It 'is not ended by a marker of what is true that cannot be written' {
            [System.IO.File]::WriteAllText((& $path 'one'), '')
            Mock Set-Marker { throw 'it is in use' }
            & $write @((& $step 'one'))
            & $run -Payload $Payload
            & $lines | Should -Be 'one done 0 | plan finished 0'
            # Another start may write it.
            $LASTEXITCODE | Should -Be 1002
        }
        It 'fails when an act changes nothing' {
            $item = & $step 'one'
            $item.argv = @('other')
            $item.attempts = 1
            & $write @($item)
            & $run -Payload $Payload
            $said[1] | Should -Match 'one failed 18 [0-9a-f]{8} it is still not true after it was done$'
        }
        It 'does not try wrong data again' {
            Mock Invoke-Program { throw (New-Object System.IO.InvalidDataException('another digest')) }
            & $write @((& $step 'one'))
            & $run -Payload $Payload
            & $lines | Should -Be 'one started 0 | one failed 18 | plan failed 18'
            $said[2] | Should -Match ' one: another digest$'
        }
        It 'says what an item cannot be' {
            & $write @(@{ id = 'moon'; kind = 'moon'; code = 13; seconds = 1; attempts = 1 })
            & $run -Payload $Payload
            & $lines | Should -Be 'moon failed 13 | plan failed 13'
        }
        It 'hides what it must not say' {
            $faults['hush'] = -1
            & $write @((& $step 'hush'))
            & $run -Payload $Payload
            $said[1] | Should -Match '\[hidden\] ended with 1$'
            $said.Count | Should -Be 5
        }
    }

    Context 'a restart' {
        BeforeEach {
            Mock Test-RestartWanted { [System.IO.File]::Exists((& $path 'restart')) }
            [System.IO.File]::WriteAllText((& $path 'restart'), '')
            & $write @(@{ id = 'settle'; kind = 'reboot'; when = 'pending'; code = 29; seconds = 900; attempts = 3 })
        }
        It 'is asked of cloudbase-init' {
            & $run -Payload $Payload -Source cloudbase
            $LASTEXITCODE | Should -Be 1003
            & $lines | Should -Be 'settle reboot 0'
            # The boot task comes second: it does not count, it does not tell, and Windows does restart.
            & $run -Payload $Payload
            $LASTEXITCODE | Should -Be 0
            & $lines | Should -Be 'settle reboot 0'
            (Read-State).reboots | Should -Be 1
            Should -Invoke Invoke-Program -Times 1 -Exactly -ParameterFilter { $Argv[0] -eq 'shutdown.exe' -and "$Success" -eq '0 1115 1190' }
            & $run -Payload $Payload -Source cloudbase
            $LASTEXITCODE | Should -Be 1003
            & $lines | Should -Be 'settle reboot 0'
        }
        It 'is asked of Windows otherwise, and counted' {
            & $run -Payload $Payload
            $LASTEXITCODE | Should -Be 0
            [string]::Join(' | ', $programs.ToArray()) | Should -Match 'shutdown\.exe /r /t 5$'
            Mock Get-BootId { '8' }
            & $run -Payload $Payload
            & $lines | Should -Be 'settle reboot 0 | settle failed 29 | plan failed 29'
            $said[2] | Should -Match '^capw1 3 2 plan failed 29 [0-9a-f]{8} settle: expected at most 1 restarts'
        }
        It 'is not asked for when it cannot be counted' {
            & $run -Payload $Payload -Source cloudbase
            Mock Write-Whole { throw 'there is not enough space on the disk' }
            Mock Get-BootId { '8' }
            & $run -Payload $Payload -Source cloudbase
            $LASTEXITCODE | Should -Be 1002
            & $lines | Should -Be 'settle reboot 0 | plan failed 11'
        }
        It 'that has happened lets the plan go on' {
            & $run -Payload $Payload
            [System.IO.File]::Delete((& $path 'restart'))
            Mock Get-BootId { '8' }
            & $run -Payload $Payload
            & $lines | Should -Be 'settle reboot 0 | settle done 0 | plan finished 0'
        }
    }

    Context 'a restart that Windows asks for by itself' {
        It 'is made once, and warned of' {
            Mock Test-RestartWanted { & $real }
            Mock Test-RestartPending { $true }
            & $write @(
                @{ id = 'settle'; kind = 'reboot'; when = 'pending'; code = 29; seconds = 900; attempts = 3 }
                @{ id = 'settle-again'; kind = 'reboot'; when = 'pending'; code = 29; seconds = 900; attempts = 3 }
            )
            & $run -Payload $Payload
            Mock Get-BootId { '8' }
            & $run -Payload $Payload
            & $lines | Should -Be 'settle reboot 0 | settle warned 29 | settle-again warned 29 | plan finished 0'
        }
        BeforeAll {
            $real = (Get-Command -Name 'Test-RestartWanted').ScriptBlock
        }
    }

    Context 'the time of a plan' {
        It 'ends before another act' {
            & $write @((& $step 'one'))
            Open-State (Get-TextDigest ([System.IO.File]::ReadAllText([System.IO.Path]::Combine($Payload, 'node.json'))))
            $Journal.before = 46 * 60
            Save-State
            & $run -Payload $Payload
            $said[0] | Should -Match 'one failed 18 [0-9a-f]{8} the plan has 45 minutes'
            $programs.Count | Should -Be 0
        }
    }

    Context 'what fails' {
        It 'is told when the plan is newer than the runner' {
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($Payload, 'node.json'), '{"planVersion": 2, "report": ["serial:COM1"], "redact": []}')
            & $run -Payload $Payload
            $LASTEXITCODE | Should -Be 0
            & $lines | Should -Be 'plan failed 12'
        }
        It 'is told when there is no plan' {
            [System.IO.File]::Delete([System.IO.Path]::Combine($Payload, 'node.json'))
            & $run -Payload $Payload
            $LASTEXITCODE | Should -Be 1002
            $said[0] | Should -Match '^capw1 1 0 plan failed 11 [0-9a-f]{8} report\.ps1:\d+ .*node\.json'
        }
        It 'is told when the disk is full' {
            & $write @((& $step 'one'))
            Mock Write-Whole { throw 'there is not enough space on the disk' }
            Mock Add-Line { throw 'there is not enough space on the disk' }
            & $run -Payload $Payload
            $LASTEXITCODE | Should -Be 1002
            $said[0] | Should -Match '^capw1 1 1 plan failed 11 [0-9a-f]{8} .*there is not enough space'
        }
        It 'is told when the disk becomes full' {
            & $write @((& $step 'one'), (& $step 'two'))
            Mock Invoke-Program {
                Mock Write-Whole { throw 'there is not enough space on the disk' }
                throw 'the program failed'
            }
            & $run -Payload $Payload
            $LASTEXITCODE | Should -Be 1002
            & $lines | Should -Be 'one started 0 | one retry 18 | one started 0 | one failed 18 | plan failed 18'
        }
        It 'does not end a plan that only cannot note its end' {
            Mock Save-Finished { throw 'there is not enough space on the disk' }
            & $write @((& $step 'one'))
            & $run -Payload $Payload
            $LASTEXITCODE | Should -Be 1002
            & $lines | Should -Be 'one started 0 | one done 0 | plan finished 0'
        }
        It 'is told by the caller when report.ps1 cannot be read' {
            $other = [System.IO.Path]::Combine($Root, 'other', 'runner')
            [void] [System.IO.Directory]::CreateDirectory($other)
            [System.IO.File]::Copy($run, [System.IO.Path]::Combine($other, 'run.ps1'), $true)
            & ([System.IO.Path]::Combine($other, 'run.ps1'))
            $LASTEXITCODE | Should -Be 1002
            $said[0] | Should -Match ' plan failed 11 [0-9a-f]{8} run\.ps1:\d+ .*report\.ps1'
        }
    }

    Context 'another runner' {
        It 'is waited for in vain without a word' {
            Mock Enter-Lock
            & $write @((& $step 'one'))
            & $run -Payload $Payload
            $LASTEXITCODE | Should -Be 1002
            $said.Count | Should -Be 0
        }
        It 'may be the caller, who holds the lock' {
            & $write @((& $step 'one'))
            $lock = Enter-Lock 0
            try { & $run -Payload $Payload -Locked } finally { $lock.Dispose() }
            $LASTEXITCODE | Should -Be 0
        }
    }
}
