# Tests of journal.ps1: see TestSetup.ps1 for what they need.
Describe 'journal.ps1' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
    }
    BeforeEach {
        foreach ($file in @($StateFile, "$StateFile.old", $ReportFile, $LogFile)) { [System.IO.File]::Delete($file) }
        $Journal.open = $false
        $Journal.lost = $false
        Mock Get-BootId { '7' }
        Mock Start-Sleep
    }

    Context 'a start of Windows' {
        BeforeAll {
            $real = (Get-Command -Name 'Get-BootId').ScriptBlock
        }
        It 'has a name that is lost with the next one' -Skip:($env:OS -ne 'Windows_NT') {
            $first = & $real
            & $real | Should -Be $first
            [Microsoft.Win32.Registry]::LocalMachine.DeleteSubKey('SOFTWARE\capw-boot')
            & $real | Should -Not -Be $first
        }
    }

    Context 'the state' {
        It 'starts anew for another plan, and its numbers go on' {
            Open-State 'a'
            $State.boots | Should -Be 1
            $State.reboots = 2
            $State.sequence = [int64] 5
            Save-State
            Open-State 'a'
            "$($State.reboots) $($State.sequence) $($State.boots)" | Should -Be '2 5 1'
            Mock Get-BootId { '8' }
            Open-State 'b'
            "$($State.reboots) $($State.sequence) $($State.boots) $($State.digest)" | Should -Be '0 5 2 b'
        }
        It 'is the newer copy that can be read: <damage>' -TestCases @(
            @{ damage = '' }
            @{ damage = '{"digest":"a","seq' }
            @{ damage = "`0`0`0`0`0`0`0`0" }
            @{ damage = '{"digest":"a"}' }
            @{ damage = 'null' }
        ) {
            Open-State 'a'
            $State.reboots = 1
            $State.sequence = [int64] 5
            Save-State
            $State.sequence = [int64] 6
            Save-State
            [System.IO.File]::WriteAllText($StateFile, $damage)
            [System.IO.File]::WriteAllText($ReportFile, 'capw1 6 1 join done 0 00000000 x')
            Open-State 'a'
            "$($State.reboots) $($State.sequence) $($State.boots)" | Should -Be '1 6 1'
            [System.IO.File]::ReadAllText($LogFile) | Should -Match 'state\.json cannot be used: '
        }
        It 'is none when no copy can be read, and the numbers go on' {
            foreach ($file in @($StateFile, "$StateFile.old")) { [System.IO.File]::WriteAllText($file, "`0`0`0") }
            [System.IO.File]::WriteAllText($ReportFile, 'capw1 6 1 join done 0 00000000 x')
            Open-State 'a'
            "$($State.reboots) $($State.sequence) $($State.boots)" | Should -Be '0 6 1'
        }
        It 'that another program holds is read and saved once it is let go' {
            Open-State 'a'
            $State.reboots = 2
            Save-State
            $late = @{ Stream = [System.IO.File]::Open($StateFile, 'Open', 'ReadWrite', 'None') }
            Mock Start-Sleep { $late.Stream.Dispose() }
            Open-State 'a'
            $State.reboots | Should -Be 2
            Save-Finished
            $late.Stream = [System.IO.File]::Open([System.IO.Path]::Combine($StateDirectory, 'finished'), 'Open', 'ReadWrite', 'None')
            Test-Finished 'a' | Should -Be $true
            [System.IO.File]::Delete([System.IO.Path]::Combine($StateDirectory, 'finished'))
        }
        It 'is known even if it cannot be saved' {
            Mock Write-Whole { throw 'there is not enough space on the disk' }
            { Open-State 'a' } | Should -Throw '*not enough space*'
            $Journal.open | Should -Be $true
            $State.boots | Should -Be 1
        }
        It 'notes that the plan is finished' {
            Open-State 'a'
            Test-Finished 'a' | Should -Be $false
            Save-Finished
            Test-Finished 'a' | Should -Be $true
        }
    }

    Context 'the time of a plan' {
        It 'is that of its runners, whatever the clock says' {
            Open-State 'a'
            $Journal.before = [int64] 100
            Save-State
            (Read-State).used | Should -BeGreaterOrEqual 100
            Open-State 'a'
            $Journal.before | Should -BeGreaterOrEqual 100
            $Journal.before | Should -BeLessThan 160
            Open-State 'b'
            $Journal.before | Should -Be 0
        }
    }

    Context 'the outcome' {
        It 'holds until the next start of Windows' {
            Open-State 'a'
            $State.outcome = 'restart'
            $State.theirs = $true
            Save-State
            Open-State 'a'
            "$($State.outcome) $($State.theirs)" | Should -Be 'restart True'
            Mock Get-BootId { '8' }
            Open-State 'a'
            "$($State.outcome) $($State.theirs)" | Should -Be ' True'
            Open-State 'b'
            "$($State.outcome) $($State.theirs)" | Should -Be ' False'
        }
    }

    Context 'a marker' {
        It 'is what was noted' {
            Get-Marker 'none' | Should -Be $null
            Set-Marker 'join' 'abc' @{ kubelet = '12 99' }
            $marker = Get-Marker 'join'
            "$($marker.digest) $($marker.processes.kubelet)" | Should -Be 'abc 12 99'
        }
        It 'that another program holds is read once it is let go' {
            Set-Marker 'held' 'abc' @{}
            $late = @{ Stream = [System.IO.File]::Open([System.IO.Path]::Combine($MarkerDirectory, 'held.json'), 'Open', 'ReadWrite', 'None') }
            Mock Start-Sleep { $late.Stream.Dispose() }
            (Get-Marker 'held').digest | Should -Be 'abc'
        }
        It 'is none when it cannot be read' {
            foreach ($text in @('', '{"dig', "`0`0`0`0", '{"digest":"a"}', '[]', '"x"')) {
                [System.IO.File]::WriteAllText([System.IO.Path]::Combine($MarkerDirectory, 'cut.json'), $text)
                Get-Marker 'cut' | Should -Be $null
            }
        }
    }

    It 'knows an item by all that is said of it' {
        $one = ConvertFrom-Json -InputObject '{"id": "a", "paths": ["x"]}'
        $other = ConvertFrom-Json -InputObject '{"id": "a", "paths": ["y"]}'
        Get-ItemDigest $one | Should -Match '^[0-9a-f]{64}$'
        Get-ItemDigest $one | Should -Not -Be (Get-ItemDigest $other)
    }
}
