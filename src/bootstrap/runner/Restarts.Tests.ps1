# Tests of a plan whose installer restarts Windows by itself: see TestSetup.ps1 for what they need.
Describe 'an installer that restarts Windows by itself' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        $run = "$PSScriptRoot/run.ps1"
        $installed = [System.IO.Path]::Combine($Root, 'agent')
        $agent = @{
            id = 'agent'; kind = 'command'; code = 18; seconds = 60; attempts = 2; argv = @('agent.exe'); directory = $Root
            check = @{ file = $installed }; exitCodes = @{ success = @(0); restart = @(1641) }
        }
        $settle = @{ id = 'settle'; kind = 'reboot'; when = 'pending'; code = 29; seconds = 900; attempts = 3 }
        $node = @{ planVersion = 1; limits = @{ reboots = 1; minutes = 45 }; report = @('serial:COM1'); redact = @('hush'); items = @($agent, $settle) }
        [System.IO.File]::WriteAllText([System.IO.Path]::Combine($Payload, 'node.json'), (ConvertTo-Json -InputObject $node -Depth 12))
        # Item, state and code of the lines that were reported.
        $lines = { [string]::Join(' | ', @($reported.ToArray() | ForEach-Object { [string]::Join(' ', $_.Split(' ')[3..5]) })) }
    }
    BeforeEach {
        [System.IO.Directory]::Delete($StateDirectory, $true)
        [void] [System.IO.Directory]::CreateDirectory($MarkerDirectory)
        [System.IO.File]::Delete($installed)
        $reported = New-Object System.Collections.ArrayList
        $programs = New-Object System.Collections.ArrayList
        $end = @{ code = 1641 }
        Mock Send-Serial { [void] $reported.Add($Line) }
        Mock Get-BootId { '7' }
        Mock Test-RestartPending { $false }
        Mock Invoke-Program {
            [void] $programs.Add([string]::Join(' ', $Argv))
            if ($Argv[0] -eq 'agent.exe') {
                [System.IO.File]::WriteAllText($installed, '')
                $Program.code = $end.code
            }
        }
    }

    It 'is followed by one restart, which Windows may have begun' {
        & $run -Payload $Payload
        & $lines | Should -Be 'agent started 0 | agent done 0 | settle reboot 0'
        Should -Invoke Invoke-Program -Times 1 -Exactly -ParameterFilter { $Argv[0] -eq 'shutdown.exe' -and $Success -contains 1115 }
        Mock Get-BootId { '8' }
        & $run -Payload $Payload
        & $lines | Should -Be 'agent started 0 | agent done 0 | settle reboot 0 | settle done 0 | plan finished 0'
        [string]::Join(' | ', $programs.ToArray()) | Should -Be 'agent.exe | shutdown.exe /r /t 5'
    }
    It 'may be interrupted by it: its work is <work>' -TestCases @(
        @{ work = 'not done'; done = $false; expected = 'agent started 0 | agent done 0 | settle done 0 | plan finished 0'; runs = 'agent.exe' }
        @{ work = 'done, and not noted'; done = $true; expected = 'agent done 0 | settle done 0 | plan finished 0'; runs = '' }
    ) {
        # The runner of the first start got no further than here.
        Set-Marker 'agent' '' @{}
        Set-RestartWanted
        if ($done) { [System.IO.File]::WriteAllText($installed, '') }
        $end.code = 0
        Mock Get-BootId { '8' }
        & $run -Payload $Payload
        & $lines | Should -Be $expected
        [string]::Join(' | ', $programs.ToArray()) | Should -Be $runs
    }
}
