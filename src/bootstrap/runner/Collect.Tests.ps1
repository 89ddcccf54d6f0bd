# Tests of collect.ps1: see TestSetup.ps1 for what they need.
Describe 'collect.ps1' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        $collect = "$PSScriptRoot/collect.ps1"
        $logs = [System.IO.Path]::Combine([string] $TestDrive, 'logs')
        $to = [System.IO.Path]::Combine([string] $TestDrive, 'collected.log')
        $run = {
            & $collect -To $to -Directories "$logs|$logs-none" @args
        }
    }
    BeforeEach {
        if ([System.IO.Directory]::Exists($logs)) { [System.IO.Directory]::Delete($logs, $true) }
        [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::Combine($logs, 'agent', 'deep'))
        [System.IO.File]::Delete($to)
        Mock Get-CimInstance {
            New-Object PSObject -Property @{ Name = 'agent'; State = 'Stopped'; StartMode = 'Auto'; ExitCode = 1067; PathName = 'C:\agent.exe --token=abcdefgh' }
        }
        Mock Get-WinEvent {
            if ($FilterHashtable.LogName -ne 'System') { throw 'no events' }
            foreach ($id in @(7031, 41)) {
                New-Object PSObject -Property @{ Id = $id; TimeCreated = New-Object System.DateTime(2026, 1, 2); ProviderName = 'p'; Message = "two`r`nlines" }
            }
        }
    }

    It 'writes one file with a header for each part, oldest events first' {
        [System.IO.File]::WriteAllText([System.IO.Path]::Combine($logs, 'report.log'), "capw1 1 1 plan`r`n")
        [System.IO.File]::WriteAllText([System.IO.Path]::Combine($logs, 'agent', 'agent.log'), "one`ntwo`n")
        [System.IO.File]::WriteAllText([System.IO.Path]::Combine($logs, 'agent', 'deep', 'not.log'), 'three')
        & $run | Should -Be "written: $to"
        $lines = [System.IO.File]::ReadAllLines($to)
        @($lines | Where-Object { $_ -like '==> * <==' }) | Should -Be @(
            '==> services.txt <==', '==> System.csv <==',
            "==> $([System.IO.Path]::Combine($logs, 'report.log')) <==", "==> $([System.IO.Path]::Combine($logs, 'agent', 'agent.log')) <==")
        @($lines | Where-Object { $_ -like 'System *' }) | ForEach-Object { $_.Substring(0, 11).Trim() } | Should -Be @('System 41 2', 'System 7031')
        $lines -contains 'agent Stopped Auto exit=1067 C:\agent.exe --token=[hidden]' | Should -Be $true
        $lines -contains 'capw1 1 1 plan' | Should -Be $true
    }
    It 'prints it for a guest agent' {
        (& $run -Print) -contains '==> services.txt <==' | Should -Be $true
        [System.IO.File]::Exists($to) | Should -Be $false
    }
    It 'hides <what>' -TestCases @(
        @{ what = 'a join token'; text = 'token a1b2c3.0123456789abcdef was used'; secret = '0123456789abcdef' }
        @{ what = 'a password of an address'; text = 'http://me:p%40ss@proxy:3128'; secret = 'p%40ss' }
        @{ what = 'a header'; text = 'Authorization: Bearer abc.def-ghi'; secret = 'abc.def-ghi' }
        @{ what = 'basic credentials'; text = 'sent "basic cmVhZGVyOnBhc3N3b3Jk"'; secret = 'cmVhZGVyOnBhc3N3b3Jk' }
        @{ what = 'a token of an account'; text = 'with eyJhbGciOiJSUzI1NiJ9.eyJhIjoxfQ.c2ln'; secret = 'c2ln' }
        @{ what = 'a setting'; text = '{"password": "geheim", "a": 1}'; secret = 'geheim' }
        @{ what = 'a private key'; text = "-----BEGIN RSA PRIVATE KEY-----`nMIIshort`n-----END RSA PRIVATE KEY-----"; secret = 'MIIshort' }
        @{ what = 'a long block of base64'; text = 'x' * 200; secret = 'xxxxxxxx' }
    ) {
        [System.IO.File]::WriteAllText([System.IO.Path]::Combine($logs, 'a.log'), "before`n$text`nafter`n")
        $null = & $run
        $all = [System.IO.File]::ReadAllText($to)
        $all.Contains($secret) | Should -Be $false
        $all | Should -Match 'before'
        $all | Should -Match '(?m)^after'
    }
    It 'takes the end of a long file, from a whole line on' {
        [System.IO.File]::WriteAllText([System.IO.Path]::Combine($logs, 'long.log'), ("first`n" + ("0123456789`n" * 200)))
        $null = & $run -Kilobytes 1
        $lines = [System.IO.File]::ReadAllLines($to)
        $lines -contains 'first' | Should -Be $false
        @($lines | Where-Object { $_ -eq '0123456789' }).Count | Should -BeGreaterThan 80
        @($lines | Where-Object { $_ -match '^\d+$' -and $_ -ne '0123456789' }).Count | Should -Be 0
    }
    It 'says what cannot be read' {
        $held = [System.IO.Path]::Combine($logs, 'held.log')
        [System.IO.File]::WriteAllText($held, 'x')
        Mock Get-CimInstance { throw 'no answer' }
        $stream = [System.IO.File]::Open($held, 'Open', 'ReadWrite', 'None')
        try { $null = & $run } finally { $stream.Dispose() }
        @([System.IO.File]::ReadAllLines($to) | Where-Object { $_ -like 'cannot be read: *' }).Count | Should -Be 2
    }
}
