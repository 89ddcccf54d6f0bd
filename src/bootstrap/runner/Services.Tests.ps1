# Tests of the items of items.ps1 that are about services and tasks: see TestSetup.ps1 for what they need.
Describe 'items.ps1' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        # Reset seconds, two unused, count, one unused, and then pairs of kind and milliseconds.
        $bytes = { param($numbers) [byte[]] @($numbers | ForEach-Object { [System.BitConverter]::GetBytes([uint32] $_) }) }
    }

    Context 'what happens when a service fails' {
        It 'is read from the registry' {
            Get-FailureActions (& $bytes @(900, 0, 0, 2, 20, 1, 5000, 1, 60000)) | Should -Be '900: 1 5000 1 60000'
            Get-FailureActions $null | Should -Be ''
            Get-FailureActions ([byte[]] @(1, 2, 3)) | Should -Be ''
        }
        It 'is what the item says' {
            Get-WantedActions (ConvertFrom-Json -InputObject '{"resetSeconds": 900, "restartDelays": [5000, 60000]}') | Should -Be '900: 1 5000 1 60000'
        }
    }

    Context 'a service' {
        BeforeEach {
            $known = @{}
            $called = New-Object System.Collections.ArrayList
            Mock Get-Service { if ($known.ContainsKey('ImagePath')) { 'service' } }
            Mock New-Service { $known.ImagePath = $BinaryPathName }
            Mock Get-RegistryValue { $known[$Name] }
            Mock Get-CimInstance { "wmi $Filter" }
            Mock Invoke-CimMethod -RemoveParameterType 'InputObject' {
                $known.ImagePath = $Arguments.PathName
                $known.Start = @{ Automatic = 2; Manual = 3 }[$Arguments.StartMode]
                if ($Arguments.ContainsKey('ServiceDependencies')) { $known.DependOnService = $Arguments.ServiceDependencies }
                New-Object PSObject -Property @{ ReturnValue = $answers }
            }
            $answers = 0
            Mock Invoke-Program {
                [void] $called.Add([string]::Join(' ', $Argv))
                if ($Argv[1] -eq 'failureflag') { $known.FailureActionsOnNonCrashFailures = 1 }
                if ($Argv[1] -eq 'failure') { $known.FailureActions = & $bytes @(900, 0, 0, 2, 20, 1, 5000, 1, 60000) }
            }
            $item = ConvertFrom-Json -InputObject @'
{"name": "kubelet", "commandLine": "\"C:\\k\\kubelet.exe\" --windows-service", "start": "auto", "dependsOn": ["containerd"], "resetSeconds": 900,
 "restartDelays": [5000, 60000], "seconds": 60}
'@
        }
        It 'has the configuration that was asked for' {
            Test-ServiceItem $item | Should -Be $false
            Set-ServiceItem $item
            Test-ServiceItem $item | Should -Be $true
            [string]::Join('|', $called.ToArray()) | Should -Match 'failure kubelet reset= 900 actions= restart/5000/restart/60000\|.*failureflag kubelet 1$'
            foreach ($change in @(@('ImagePath', 'C:\k\other.exe'), @('Start', 3), @('DependOnService', 'other'), @('FailureActions', $null))) {
                $before = $known[$change[0]]
                $known[$change[0]] = $change[1]
                Test-ServiceItem $item | Should -Be $false
                $known[$change[0]] = $before
            }
            Set-ServiceItem $item
            Should -Invoke New-Service -Times 1 -Exactly
        }
        It 'keeps its dependencies when none are named' {
            $item.PSObject.Properties.Remove('dependsOn')
            $known.DependOnService = 'http'
            Set-ServiceItem $item
            Test-ServiceItem $item | Should -Be $true
            $known.DependOnService | Should -Be 'http'
        }
        It 'is told the address that leads to an endpoint, where there are several networks' {
            $address = ConvertFrom-Json -InputObject '{"flag": "--node-ip=", "to": "10.0.0.9:6443"}'
            $item.PSObject.Properties.Add((New-Object System.Management.Automation.PSNoteProperty('address', $address)))
            $networks = @('Ethernet')
            Mock Get-SourceAddress { '10.0.0.21' } -ParameterFilter { $To -eq '10.0.0.9:6443' }
            Mock Get-OwnNetwork { $networks }
            Set-ServiceItem $item
            $known.ImagePath | Should -Be '"C:\k\kubelet.exe" --windows-service'
            Test-ServiceItem $item | Should -Be $true
            $networks = @('Ethernet', 'Storage')
            Test-ServiceItem $item | Should -Be $false
            Set-ServiceItem $item
            $known.ImagePath | Should -Be '"C:\k\kubelet.exe" --windows-service --node-ip=10.0.0.21'
            Test-ServiceItem $item | Should -Be $true
        }
        It 'says what the service manager answers' {
            $answers = 5
            { Set-ServiceItem $item } | Should -Throw 'the service manager answers 5 to the change of kubelet'
        }
    }

    Context 'a service that runs' {
        BeforeEach {
            $service = New-Object PSObject -Property @{ Status = 'Stopped'; Said = ''; Next = New-Object System.Collections.Queue }
            $service.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('Start', { $this.Said += 'start '; $this.Status = 'Running' })))
            $service.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('Stop', { $this.Said += 'stop '; $this.Status = 'Stopped' })))
            $service.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('WaitForStatus', { param($status, $limit) $this.Said += "$status " })))
            $service.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('Refresh', { if ($this.Next.Count -gt 0) { $this.Status = $this.Next.Dequeue() } })))
            Mock Start-Sleep
            Mock Get-Service { $service }
            Mock Get-CimInstance { New-Object PSObject -Property @{ ProcessId = 12 } }
            $made = New-Object PSObject -Property @{ StartTime = New-Object System.DateTime(2026, 1, 1) }
            Mock Get-Process { $made }
            $item = ConvertFrom-Json -InputObject '{"name": "kubelet", "after": ["config"], "seconds": 60}'
            Set-Marker 'config' 'x' @{ kubelet = '' }
        }
        It 'was started after what it reads' {
            Test-RunningItem $item | Should -Be $false
            Set-RunningItem $item
            $service.Said | Should -Be 'start '
            Test-RunningItem $item | Should -Be $true
            # Another service reads it as well; the clock may say what it likes.
            Set-Marker 'config' 'y' @{ other = '1 1'; kubelet = Get-ServiceProcess 'kubelet' }
            Test-RunningItem $item | Should -Be $false
            $service.Said = ''
            Set-RunningItem $item
            $service.Said | Should -Be 'stop Stopped start '
            $made.StartTime = $made.StartTime.AddHours(-8)
            Test-RunningItem $item | Should -Be $true
        }
        It 'is not compared when its process cannot be seen' {
            $service.Status = 'Running'
            Mock Get-Process { throw 'there is no such process' }
            Get-ServiceProcess 'kubelet' | Should -Be ''
            Test-RunningItem $item | Should -Be $true
        }
        It 'is not stopped twice' {
            $service.Status = 'StopPending'
            Set-RunningItem $item
            $service.Said | Should -Be 'Stopped start '
        }
        It 'may not exist' {
            Mock Get-Service
            Test-RunningItem $item | Should -Be $false
            { Set-RunningItem $item } | Should -Throw 'there is no service kubelet'
        }
        It 'may take its time' {
            foreach ($status in @('StartPending', 'StartPending', 'Running')) { $service.Next.Enqueue($status) }
            Set-RunningItem $item
            Should -Invoke Start-Sleep -Times 2 -Exactly
        }
        It 'that ends at once is told at once, with what it left' {
            $written = [System.IO.Path]::Combine($Root, 'service.log')
            [System.IO.File]::WriteAllText($written, "I1 starting`nE1 error: no configuration`n")
            Mock Read-End { [System.IO.File]::ReadAllText($written) } -ParameterFilter { $Path -eq 'C:\var\log\kubelet.log' }
            Mock Get-RegistryValue { '"C:\k\kube-log-runner.exe" -log-file=C:\var\log\kubelet.log "C:\k\kubelet.exe" --v=2' }
            Mock Get-CimInstance { New-Object PSObject -Property @{ ProcessId = 0; ExitCode = 1066; ServiceSpecificExitCode = 7 } }
            foreach ($status in @('StartPending', 'Stopped')) { $service.Next.Enqueue($status) }
            { Set-RunningItem $item } | Should -Throw 'kubelet ended while it started: exit code 7, E1 error: no configuration'
            Should -Invoke Start-Sleep -Times 1 -Exactly
        }
        It 'that cannot be started is told' {
            Mock Get-RegistryValue { 'C:\k\kubelet.exe' }
            Mock Get-CimInstance { New-Object PSObject -Property @{ ExitCode = 1053 } }
            $service.PSObject.Members.Remove('Start')
            $service.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('Start', { throw 'access denied' })))
            { Set-RunningItem $item } | Should -Throw 'kubelet does not start: access denied exit code 1053, '
        }
        It 'that hangs is told after its time' {
            Mock Get-ServiceEnd { 'exit code 0, nothing' }
            $item.seconds = -1
            $service.Next.Enqueue('StartPending')
            { Set-RunningItem $item } | Should -Throw 'kubelet is StartPending after -1 seconds: exit code 0, nothing'
        }
    }

    Context 'a task' {
        BeforeEach {
            $tasks = @{}
            Mock New-ScheduledTaskTrigger { "start=$AtStartup once=$Once every=$RepetitionInterval" }
            Mock New-ScheduledTaskAction { New-Object PSObject -Property @{ Execute = $Execute; Arguments = $Argument } }
            Mock New-ScheduledTaskPrincipal { $UserId }
            Mock New-ScheduledTaskSettingsSet { "$ExecutionTimeLimit $Priority" }
            Mock Register-ScheduledTask {
                $tasks[$TaskName] = New-Object PSObject -Property @{ Actions = @($Action); Description = $Description; Trigger = $Trigger; Principal = $Principal; Limit = $Settings }
            }
            Mock Get-ScheduledTask { $tasks[$TaskName] }
        }
        It 'runs at each start as SYSTEM' {
            $item = ConvertFrom-Json -InputObject '{"name": "capw", "argv": ["powershell.exe", "-File", "C:\\a b.ps1"]}'
            Test-TaskItem $item | Should -Be $false
            Set-TaskItem $item
            Test-TaskItem $item | Should -Be $true
            $tasks['capw'].Actions[0].Arguments | Should -Be '-File "C:\a b.ps1"'
            "$($tasks['capw'].Trigger) $($tasks['capw'].Principal)" | Should -Be 'start=True once=False every= S-1-5-18'
            # Plans may be longer than any limit that could be set here, and a task's usual priority is behind everything else.
            $tasks['capw'].Limit | Should -Be '00:00:00 4'
            $tasks['capw'].Actions[0].Execute = 'other.exe'
            Test-TaskItem $item | Should -Be $false
        }
        It 'runs again and again' {
            $item = ConvertFrom-Json -InputObject '{"name": "capw-logs", "argv": ["powershell.exe", "-File", "x"], "everyMinutes": 15}'
            Set-TaskItem $item
            $tasks['capw-logs'].Trigger | Should -Be 'start=False once=True every=00:15:00'
            $tasks['capw-logs'].Limit | Should -Be '00:15:00 7'
            $item.everyMinutes = 16
            Test-TaskItem $item | Should -Be $false
        }
    }
}
