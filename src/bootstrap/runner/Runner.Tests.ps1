# Tests of the runner's own logic for Pester 5 (and 3.4, as far as it goes): what needs no Windows service is real, the rest is
# mocked. Run in Windows PowerShell 5.1 or PowerShell 7 on Windows: Invoke-Pester -Path src\bootstrap\runner
BeforeAll {
    Set-StrictMode -Version 2.0
    $Root = "$([System.IO.Path]::GetTempPath())capw-$([System.Guid]::NewGuid())"
    $Payload = "$Root\payload"
    . "$PSScriptRoot\journal.ps1"
    . "$PSScriptRoot\windows.ps1"
    . "$PSScriptRoot\items.ps1"
    . "$PSScriptRoot\programs.ps1"
    . "$PSScriptRoot\scripts.ps1"
    [void] [System.IO.Directory]::CreateDirectory($MarkerDirectory)
    [void] [System.IO.Directory]::CreateDirectory($Payload)
}

Describe 'arguments' {
    It 'come back as the C runtime reads them' {
        ConvertTo-Argument 'plain' | Should -Be 'plain'
        ConvertTo-Argument '' | Should -Be '""'
        ConvertTo-Argument 'a b' | Should -Be '"a b"'
        ConvertTo-Argument 'say "x"' | Should -Be '"say \"x\""'
        ConvertTo-Argument 'C:\a b\' | Should -Be '"C:\a b\\"'
    }
}

Describe 'reports' {
    It 'have the check sum of RFC 1950' {
        Get-Adler32 'Wikipedia' | Should -Be '11e60398'
    }
    It 'are one line of printable characters' {
        Get-ReportLine 7 1 'join' 'failed' 71 "a`r`nb" | Should -Match '^capw1 7 1 join failed 71 [0-9a-f]{8} a\?\?b$'
    }
}

Describe 'what a program said last' {
    It 'is the line that it marks as an error, else its last line' {
        $file = "$Root\said.txt"
        [System.IO.File]::WriteAllText($file, "I1 x`r`nerror: it failed`r`nTo see the stack trace, use --v=5`r`n")
        Get-LastWord $file | Should -Be 'error: it failed'
        [System.IO.File]::WriteAllText($file, "one`ntwo`n`n")
        Get-LastWord $file | Should -Be 'two'
        [System.IO.File]::WriteAllText($file, '')
        Get-LastWord $file | Should -Be ''
    }
}

Describe 'access' {
    It 'does not depend on the order of its rules, nor on how they are written' {
        $one = Get-Rules (New-Security 'D:P(A;CI;0x2;;;BU)(A;;FA;;;SY)(A;CI;0x4;;;BU)' $true)
        $one | Should -Be (Get-Rules (New-Security 'D:P(A;;0x1f01ff;;;SY)(A;CI;DCLC;;;BU)' $true))
        $one | Should -Not -Be (Get-Rules (New-Security 'D:P(A;;FA;;;SY)(A;CI;0x2;;;BU)' $true))
    }
    It 'is for SYSTEM and administrators, and for users what is said' {
        Get-Sddl 'admins' $true | Should -Be 'D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)'
        Get-Sddl 'admins' $false | Should -Be 'D:P(A;;FA;;;SY)(A;;FA;;;BA)'
        Get-Sddl 'readable' $true | Should -Be 'D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)'
        Get-Sddl 'readable' $false | Should -Be 'D:P(A;;FA;;;SY)(A;;FA;;;BA)(A;;0x1200a9;;;BU)'
        Get-Sddl 'shared' $true | Should -Be 'D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)(A;CIIO;0x6;;;BU)(A;OICIIO;FA;;;CO)'
        Get-Sddl 'inherited' $true | Should -Be $null
    }
    It 'is refused when nobody knows it' {
        { Get-Sddl 'everybody' $true } | Should -Throw
        { Get-Sddl 'shared' $false } | Should -Throw
    }
    It 'is found again where it was set' {
        foreach ($access in @('admins', 'readable', 'shared')) {
            $directory = "$Root\access-$access"
            [void] [System.IO.Directory]::CreateDirectory($directory)
            Test-Access $directory $access $true | Should -Be $false
            Set-Access $directory $access $true
            Test-Access $directory $access $true | Should -Be $true
        }
    }
    It 'lets users make files in what lies below a shared directory, not in itself' {
        $directory = "$Root\access-below"
        [void] [System.IO.Directory]::CreateDirectory($directory)
        Set-Access $directory 'shared' $true
        [void] [System.IO.Directory]::CreateDirectory("$directory\below")
        $users = 'S-1-5-32-545'
        $may = {
            param($path)
            $rules = [System.IO.Directory]::GetAccessControl($path).GetAccessRules($true, $true, [System.Security.Principal.SecurityIdentifier])
            $own = @($rules | Where-Object { "$($_.IdentityReference)" -eq $users -and "$($_.PropagationFlags)" -notmatch 'InheritOnly' })
            @($own | Where-Object { ([int] $_.FileSystemRights -band 6) -eq 6 }).Count -gt 0
        }
        & $may $directory | Should -Be $false
        & $may "$directory\below" | Should -Be $true
    }
}

Describe 'checks' {
    It 'see files' {
        Test-Check (ConvertFrom-Json -InputObject '{"file": "Z:\\none"}') | Should -Be $false
        Test-Check (ConvertFrom-Json -InputObject '{"not": {"file": "Z:\\none"}}') | Should -Be $true
    }
    It 'hold only together' {
        Test-Check (ConvertFrom-Json -InputObject '{"all": [{"not": {"file": "Z:\\none"}}, {"file": "Z:\\none"}]}') | Should -Be $false
    }
    It 'are refused when the runner does not know them' {
        { Test-Check (ConvertFrom-Json -InputObject '{"moon": "full"}') } | Should -Throw
    }
}

Describe 'a command without a check' {
    It 'is run once' {
        Mock Invoke-Program { $script:ExitCode = 0 }
        $item = ConvertFrom-Json -InputObject '{"id": "user-a", "kind": "command", "argv": ["a.exe"], "directory": "C:\\", "seconds": 5}'
        Test-CommandItem $item | Should -Be $false
        Set-CommandItem $item
        Test-CommandItem $item | Should -Be $true
    }
    It 'asks for a restart when its exit code says so' {
        Mock Invoke-Program { $script:ExitCode = 3010 }
        Mock Get-BootId { '7' }
        Mock Test-Path { $false }
        $codes = '{"success": [0], "restart": [3010]}'
        $item = ConvertFrom-Json -InputObject "{`"id`": `"user-b`", `"argv`": [`"b.exe`"], `"directory`": `"C:\\`", `"seconds`": 5, `"exitCodes`": $codes}"
        Set-CommandItem $item
        Test-RestartWanted | Should -Be $true
    }
}

Describe 'registry data' {
    It 'has the type that the plan names' {
        $item = ConvertFrom-Json -InputObject '{"data": {"multiString": ["a", "b"]}}'
        (Get-RegistryData $item).Type | Should -Be 'multiString'
        @((Get-RegistryData $item).Value).Count | Should -Be 2
    }
    It 'holds numbers above two thousand millions' {
        (Get-RegistryData (ConvertFrom-Json -InputObject '{"data": {"dword": 4294967295}}')).Value | Should -Be -1
    }
}

Describe 'port ranges' {
    It 'are read from what netsh says in any language' {
        Mock Invoke-Program { $script:Output = "Protokoll tcp`r`n----`r`nStartport      : 33000`r`nAnzahl von Ports: 32536`r`n" }
        $item = ConvertFrom-Json -InputObject '{"protocol": "TCP", "start": 33000, "count": 32536}'
        Test-DynamicPortsScript $item | Should -Be $true
        $item.start = 49152
        Test-DynamicPortsScript $item | Should -Be $false
    }
    It 'may lie within a larger one' {
        Mock Invoke-Program { $script:Output = "Start Port    End Port`r`n----------    --------`r`n     30000       32767     *`r`n" }
        Test-ReservedPortsScript (ConvertFrom-Json -InputObject '{"protocol": "TCP", "start": 30000, "count": 2768}') | Should -Be $true
        Test-ReservedPortsScript (ConvertFrom-Json -InputObject '{"protocol": "TCP", "start": 30000, "count": 2769}') | Should -Be $false
    }
}

Describe 'the clock' {
    It 'is held against the header Date' {
        Mock Invoke-Program { $script:Output = "HTTP/1.1 401 Unauthorized`r`nDate: $([System.DateTime]::UtcNow.AddSeconds(-90).ToString('r'))`r`n" }
        $item = ConvertFrom-Json -InputObject '{"url": "https://api.example.com:6443/healthz", "within": 30}'
        Test-ClockScript $item | Should -Be $false
        $item.within = 120
        Test-ClockScript $item | Should -Be $true
    }
    It 'is not good when nobody says the time' {
        Mock Invoke-Program { $script:Output = 'HTTP/1.0 400 Bad Request' }
        { Get-ClockDifference 'https://api.example.com:6443/healthz' } | Should -Throw
    }
}

Describe 'a report' {
    It 'is said when nothing else is known' {
        $State = $null
        Mock Send-Serial { $script:said = $Line }
        Mock Send-GuestInfo { throw 'the tools are busy' }
        Mock Send-KeyValue { $null }
        Send-Report 'plan' 'failed' 11 'no disk'
        $script:said | Should -Match '^capw1 1 0 plan failed 11 [0-9a-f]{8} no disk$'
        [System.IO.File]::ReadAllText($ReportFile).Trim() | Should -Be $script:said
        [System.IO.File]::ReadAllText($LogFile) | Should -Match 'report to guestinfo: the tools are busy'
    }
}

Describe 'a download' {
    BeforeEach {
        Mock Receive-File { [System.IO.File]::WriteAllText($Path, 'abc') }
    }
    It 'is kept with the digest that was asked for' {
        $digest = 'sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
        $item = New-Object PSObject -Property @{ url = 'https://a.example.com/a.exe'; path = "$Root\bin\a.exe"; digest = $digest; seconds = 5 }
        Test-DownloadItem $item | Should -Be $false
        Set-DownloadItem $item
        Test-DownloadItem $item | Should -Be $true
        # What is there already gets another name: it may run.
        Set-DownloadItem $item
        [System.IO.File]::Exists("$Root\bin\a.exe.old") | Should -Be $true
    }
    It 'is thrown away with another one, and not tried again' {
        $item = New-Object PSObject -Property @{ url = 'https://a.example.com/b.exe'; path = "$Root\bin\b.exe"; digest = 'sha256:00'; seconds = 5 }
        { Set-DownloadItem $item } | Should -Throw -ExceptionType ([System.IO.InvalidDataException])
        [System.IO.File]::Exists("$Root\bin\b.exe") | Should -Be $false
        [System.IO.File]::Exists("$Root\bin\b.exe.new") | Should -Be $false
    }
}

Describe 'the proxy of a download' {
    It 'is the one that the plan names, or none' {
        Get-DownloadProxy (ConvertFrom-Json -InputObject '{"url": "https://a.example.com/a.exe"}') | Should -Be $null
        $item = ConvertFrom-Json -InputObject '{"proxy": {"plain": "http://proxy.example.com:3128"}}'
        (Get-DownloadProxy $item).Address.Host | Should -Be 'proxy.example.com'
        (Get-DownloadProxy $item).Credentials | Should -Be $null
    }
    It 'may be a secret with user and password' {
        [void] [System.IO.Directory]::CreateDirectory("$Payload\secret")
        [System.IO.File]::WriteAllText("$Payload\secret\download-proxy", 'http://me:p%40ss@proxy.example.com:3128')
        $item = ConvertFrom-Json -InputObject '{"proxy": {"secret": {"source": "secret/download-proxy", "sha256": "00"}}}'
        (Get-DownloadProxy $item).Credentials.Password | Should -Be 'p@ss'
    }
}

Describe 'the end of what a program wrote' {
    It 'is the cause and not the advice after it' {
        $file = "$Root\said"
        [System.IO.File]::WriteAllText($file, "error: it failed`nTo see the stack trace of this error execute with --v=5 or higher`n")
        Get-Tail $file 160 | Should -Be 'error: it failed'
    }
}

Describe 'logs' {
    It 'go on while others write them' {
        $log = "$Root\a.log"
        $writer = New-Object System.IO.FileStream($log, [System.IO.FileMode]::Append, [System.IO.FileAccess]::Write, [System.IO.FileShare]::ReadWrite)
        try {
            foreach ($byte in @(97, 98, 99)) {
                $writer.WriteByte($byte)
                $writer.Flush()
                & "$PSScriptRoot\logs.ps1" -Paths "$log|$Root\none.log" -Megabytes 0 -Keep 2
            }
        } finally { $writer.Dispose() }
        [System.IO.File]::ReadAllText("$log.1") | Should -Match 'c$'
        [System.IO.File]::Exists("$log.2") | Should -Be $true
        [System.IO.File]::Exists("$log.3") | Should -Be $false
    }
}
