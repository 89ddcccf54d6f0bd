# Tests of windows.ps1: see TestSetup.ps1 for what they need.
Describe 'windows.ps1' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        # A shell, by which programs of all kinds are made.
        $shell = @('/bin/sh', '-c')
        if ($env:OS -eq 'Windows_NT') { $shell = @("$env:SystemRoot\System32\cmd.exe", '/c') }
    }

    Context 'access' {
        It 'is for SYSTEM and administrators, and for users what is said' {
            Get-Sddl 'admins' $true | Should -Be 'D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)'
            Get-Sddl 'admins' $false | Should -Be 'D:P(A;;FA;;;SY)(A;;FA;;;BA)'
            Get-Sddl 'readable' $true | Should -Be 'D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)'
            Get-Sddl 'readable' $false | Should -Be 'D:P(A;;FA;;;SY)(A;;FA;;;BA)(A;;0x1200a9;;;BU)'
            Get-Sddl 'shared' $true | Should -Be 'D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)(A;CIIO;0x6;;;BU)(A;OICIIO;FA;;;CO)'
            Get-Sddl 'inherited' $true | Should -Be $null
        }
        It 'is refused when it has no meaning' {
            { Get-Sddl 'everybody' $true } | Should -Throw
            { Get-Sddl 'shared' $false } | Should -Throw
        }
        It 'does not depend on the order of its rules, nor on how they are written' -Skip:($env:OS -ne 'Windows_NT') {
            $one = Get-Rules (New-Security 'D:P(A;CI;0x2;;;BU)(A;;FA;;;SY)(A;CI;0x4;;;BU)' $true)
            $one | Should -Be (Get-Rules (New-Security 'D:P(A;;0x1f01ff;;;SY)(A;CI;DCLC;;;BU)' $true))
            $one | Should -Not -Be (Get-Rules (New-Security 'D:P(A;;FA;;;SY)(A;CI;0x2;;;BU)' $true))
        }
        It 'is compared by its rules, if nothing is inherited' {
            $found = New-Object PSObject -Property @{ AreAccessRulesProtected = $true; Sddl = 'D:P(A;;FA;;;BA)(A;;FA;;;SY)' }
            $found.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('GetSecurityDescriptorSddlForm', { $this.Sddl })))
            $asked = New-Object PSObject -Property @{ Sddl = '' }
            $asked.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('GetSecurityDescriptorSddlForm', { $this.Sddl })))
            Mock Invoke-AccessControl { $found }
            Mock New-Security { $asked.Sddl = $Sddl; $asked }
            Test-Access 'a' 'admins' $false | Should -Be $true
            Test-Access 'a' 'readable' $false | Should -Be $false
            $found.AreAccessRulesProtected = $false
            Test-Access 'a' 'admins' $false | Should -Be $false
            Test-Access 'a' 'inherited' $false | Should -Be $true
            Should -Invoke Invoke-AccessControl -Times 3 -Exactly -ParameterFilter { $null -eq $Security }
        }
        It 'is given, unless it is inherited' {
            Mock Invoke-AccessControl
            Mock New-Security { "security $Sddl" }
            Set-Access 'a' 'inherited' $true
            Set-Access 'a' 'admins' $true
            Should -Invoke Invoke-AccessControl -Times 1 -Exactly
            Should -Invoke Invoke-AccessControl -Times 1 -Exactly -ParameterFilter { $Directory -and $Security -like 'security D:P*' }
        }
        It 'is found again where it was set' -Skip:($PSVersionTable.PSVersion.Major -gt 5) {
            foreach ($access in @('admins', 'readable', 'shared')) {
                $directory = "$Root\access-$access"
                [void] [System.IO.Directory]::CreateDirectory($directory)
                Test-Access $directory $access $true | Should -Be $false
                Set-Access $directory $access $true
                Test-Access $directory $access $true | Should -Be $true
            }
        }
        It 'lets users make files in what lies below a shared directory, not in itself' -Skip:($PSVersionTable.PSVersion.Major -gt 5) {
            $directory = "$Root\access-below"
            [void] [System.IO.Directory]::CreateDirectory($directory)
            Set-Access $directory 'shared' $true
            [void] [System.IO.Directory]::CreateDirectory("$directory\below")
            $users = 'S-1-5-32-545'
            $may = {
                param($path)
                $rules = (Invoke-AccessControl $path $true $null).GetAccessRules($true, $true, [System.Security.Principal.SecurityIdentifier])
                $own = @($rules | Where-Object { "$($_.IdentityReference)" -eq $users -and "$($_.PropagationFlags)" -notmatch 'InheritOnly' })
                @($own | Where-Object { ([int] $_.FileSystemRights -band 6) -eq 6 }).Count -gt 0
            }
            & $may $directory | Should -Be $false
            & $may "$directory\below" | Should -Be $true
        }
        It 'of a key is changed with the one right that it needs' -Skip:($env:OS -ne 'Windows_NT') {
            { Set-KeySecurity 'SOFTWARE\capw-none' 'ChangePermissions' $null } | Should -Throw '*does not exist*'
            $null = New-Item -Path 'HKLM:\SOFTWARE\capw-test' -Force
            Set-KeySecurity 'SOFTWARE\capw-test' 'ChangePermissions' (New-SecretKeySecurity)
            Remove-Item -LiteralPath 'HKLM:\SOFTWARE\capw-test'
        }
    }

    Context 'files' {
        It 'have a digest' {
            $file = [System.IO.Path]::Combine($Root, 'abc')
            [System.IO.File]::WriteAllText($file, 'abc')
            Get-FileDigest $file | Should -Be 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
        }
        It 'of the payload are found by their names in the archive' {
            Get-PayloadPath 'files/a' | Should -Be ([System.IO.Path]::Combine($Payload, 'files', 'a'))
        }
    }

    Context 'the end of a file' {
        It 'is read while another program writes it' {
            $log = [System.IO.Path]::Combine($Root, 'service.log')
            $writer = [System.IO.File]::Open($log, 'Create', 'Write', 'ReadWrite')
            try {
                $text = [System.Text.Encoding]::ASCII.GetBytes(('x' * 9000) + "`nlast")
                $writer.Write($text, 0, $text.Length)
                $writer.Flush()
                Read-End $log | Should -Match '^x+\nlast$'
                (Read-End $log).Length | Should -Be 8000
            } finally { $writer.Dispose() }
            Read-End "$log.none" | Should -Be ''
        }
    }

    Context 'what a program said last' {
        It 'is the line that it marks as an error, else its last line' {
            Get-LastWord "I1 x`r`nerror: it failed`r`nTo see the stack trace, use --v=5`r`n" | Should -Be 'error: it failed'
            Get-LastWord "one`ntwo`n`n" | Should -Be 'two'
            Get-LastWord '' | Should -Be ''
            Get-LastWord "`r`n `r`n" | Should -Be ''
            Get-LastWord "[ERROR Port]: in use`n[ERROR File]: exists`nhint`n" | Should -Be '[ERROR File]: exists'
            Get-LastWord "error: old`n$("line`n" * 19)" | Should -Be 'error: old'
            Get-LastWord "error: old`n$("line`n" * 20)" | Should -Be 'line'
        }
        It 'is the cause and not the advice after it' {
            $text = "error: it failed`nTo see the stack trace of this error execute with --v=5 or higher`n"
            Get-Tail $text 160 | Should -Be 'error: it failed'
            Get-Tail $text 6 | Should -Be 'failed'
        }
    }

    Context 'a program' {
        It 'that ends well leaves its code and what it wrote' {
            Invoke-Program ($shell + @('echo hello')) $Root 60
            $Program.code | Should -Be 0
            $Program.output.Trim() | Should -Be 'hello'
        }
        It 'that fails is told with what it said last' {
            { Invoke-Program ($shell + @('echo no luck>&2 & exit 3')) $Root 60 } | Should -Throw '*ended with 3: no luck'
            { Invoke-Program ($shell + @('echo some luck& exit 3')) $Root 60 } | Should -Throw '*ended with 3: some luck'
        }
        It 'may end with other codes' {
            Invoke-Program ($shell + @('exit 3')) $Root 60 @(0, 3)
            $Program.code | Should -Be 3
        }
        It 'that does not end is ended, and what it said is told' {
            Mock Stop-ProcessTree { [System.Diagnostics.Process]::GetProcessById($Id).Kill() }
            $wait = 'echo busy; exec sleep 60'
            if ($env:OS -eq 'Windows_NT') { $wait = 'echo busy& ping -n 60 127.0.0.1 >nul' }
            { Invoke-Program ($shell + @($wait)) ([System.IO.Path]::GetTempPath()) 1 } | Should -Throw '*did not end within 1 seconds: busy'
        }
        It 'may leave another one behind' {
            $leave = 'sleep 60 & echo done; exit 3'
            if ($env:OS -eq 'Windows_NT') { $leave = 'start /b ping -n 60 127.0.0.1 & echo done& exit 3' }
            $watch = [System.Diagnostics.Stopwatch]::StartNew()
            Invoke-Program ($shell + @($leave)) ([System.IO.Path]::GetTempPath()) 60 @(3)
            $Program.code | Should -Be 3
            $Program.output | Should -Match 'done'
            Invoke-Program ($shell + @('echo next')) $Root 60
            $Program.output | Should -Match 'next'
            $watch.Elapsed.TotalSeconds | Should -BeLessThan 45
        }
        It 'finds its neighbours, but after the programs of Windows' {
            $before = $env:Path
            Mock Start-Program { throw 'not started' }
            $one = [System.IO.Path]::Combine($Root, 'bin', 'a.exe')
            { Invoke-Program @($one) $Root 60 } | Should -Throw
            { Invoke-Program @($one) $Root 60 } | Should -Throw
            $env:Path | Should -Be "$before;$([System.IO.Path]::GetDirectoryName($one))"
            $env:Path = $before
        }
        It 'is ended with all that it started' {
            $process = New-Object PSObject
            $process.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('WaitForExit', { $true })))
            $process.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('Dispose', { $null })))
            Mock Start-Program { $process }
            Stop-ProcessTree 12
            Should -Invoke Start-Program -Times 1 -Exactly -ParameterFilter { $Path -like '*taskkill.exe' -and $CommandLine -eq '/T /F /PID 12' }
        }
        It 'of Windows is called by its own path' {
            $before = $env:SystemRoot
            $env:SystemRoot = [System.IO.Path]::Combine($Root, 'windows')
            $own = [System.IO.Path]::Combine($env:SystemRoot, 'System32')
            [void] [System.IO.Directory]::CreateDirectory($own)
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($own, 'dism.exe'), '')
            Get-ProgramPath 'dism.exe' | Should -Be ([System.IO.Path]::Combine($own, 'dism.exe'))
            Get-ProgramPath 'agent.exe' | Should -Be 'agent.exe'
            $elsewhere = [System.IO.Path]::Combine($Root, 'k', 'dism.exe')
            Get-ProgramPath $elsewhere | Should -Be $elsewhere
            $env:SystemRoot = $before
        }
        It 'gets arguments in a form of its own as they are' {
            Mock Start-Program { throw 'not started' }
            { Invoke-Program @('msiexec.exe', '/i', 'C:\a b.msi', '/qn') $Root 60 @(0) 'NAME="a ""b"" c"' } | Should -Throw
            Should -Invoke Start-Program -Times 1 -Exactly -ParameterFilter { $CommandLine -eq '/i "C:\a b.msi" /qn NAME="a ""b"" c"' }
        }
        It 'that is not there is told' {
            { Invoke-Program @('no-such-program.exe', 'x') $Root 60 } | Should -Throw
        }
        It 'gets its arguments whole' {
            ConvertTo-CommandLine @('a b', 'c') | Should -Be '"a b" c'
        }
    }

    Context 'the registry' {
        It 'has a value or not' {
            Mock Test-Path { $LiteralPath -eq 'HKLM:\a' }
            $values = New-Object PSObject
            $values.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('GetValue', { param($name, $default) "$name!" })))
            Mock Get-Item { $values }
            Get-RegistryValue 'HKLM:\a' 'x' | Should -Be 'x!'
            Get-RegistryValue 'HKLM:\b' 'x' | Should -Be $null
        }
    }

    Context 'a check' {
        BeforeAll {
            $check = { param($text) ConvertFrom-Json -InputObject $text }
            $file = [System.IO.Path]::Combine($Root, 'there')
            [System.IO.File]::WriteAllText($file, '')
            $there = ConvertTo-Json -InputObject @{ file = $file } -Compress
            $none = ConvertTo-Json -InputObject @{ file = "$file.none" } -Compress
        }
        It 'sees files' {
            Test-Check (& $check $there) | Should -Be $true
            Test-Check (& $check $none) | Should -Be $false
        }
        It 'may be turned round, and hold only together' {
            Test-Check (& $check "{`"not`": $none}") | Should -Be $true
            Test-Check (& $check "{`"all`": [$there, $none]}") | Should -Be $false
            Test-Check (& $check "{`"all`": [$there, $there]}") | Should -Be $true
        }
        It 'is refused when the runner does not know it' {
            { Test-Check (& $check '{"moon": "full"}') } | Should -Throw
        }
        It 'sees pipes by their whole name' {
            Mock Get-Pipe { @("\\.\pipe\$Pipe-2", '\\.\pipe\containerd') }
            Test-Check (& $check '{"pipe": "containerd"}') | Should -Be $true
            Test-Check (& $check '{"pipe": "docker"}') | Should -Be $false
        }
        It 'sees values and keys of the registry' {
            Mock Get-RegistryValue { if ($Name -eq 'n') { 'Value' } }
            Mock Test-Path { $true } -ParameterFilter { $LiteralPath -eq 'HKLM:\k' }
            Test-Check (& $check '{"registry": {"key": "HKLM:\\k", "name": "n", "equals": "value"}}') | Should -Be $true
            Test-Check (& $check '{"registry": {"key": "HKLM:\\k", "name": "m", "equals": "value"}}') | Should -Be $false
            Test-Check (& $check '{"registryValue": {"key": "HKLM:\\k", "name": "n"}}') | Should -Be $true
            Test-Check (& $check '{"registryValue": {"key": "HKLM:\\k", "name": "m"}}') | Should -Be $false
            Test-Check (& $check '{"registryKey": "HKLM:\\k"}') | Should -Be $true
        }
        It 'sees listeners and what they answer' {
            $listener = New-Object System.Net.HttpListener
            $socket = New-Object System.Net.Sockets.TcpListener([System.Net.IPAddress]::Loopback, 0)
            $socket.Start()
            $port = $socket.LocalEndpoint.Port
            Test-Check (& $check "{`"port`": $port}") | Should -Be $true
            $socket.Stop()
            Test-Check (& $check "{`"port`": $port}") | Should -Be $false
            Test-Check (& $check "{`"url`": `"http://127.0.0.1:$port/`"}") | Should -Be $false
            $listener.Prefixes.Add("http://127.0.0.1:$port/")
            $listener.Start()
            try {
                foreach ($code in @(200, 204)) {
                    $asked = $listener.GetContextAsync()
                    $runner = [powershell]::Create().AddScript('param($file, $url) Set-StrictMode -Version 2.0; $StateFile = "x"; $Root = "x"; . $file; Test-Url $url')
                    $runner = $runner.AddArgument("$PSScriptRoot/windows.ps1").AddArgument("http://127.0.0.1:$port/")
                    $answer = $runner.BeginInvoke()
                    $asked.Result.Response.StatusCode = $code
                    $asked.Result.Response.Close()
                    $runner.EndInvoke($answer)[0] | Should -Be ($code -eq 200)
                    $runner.Dispose()
                }
            } finally { $listener.Stop() }
        }
        It 'sees services that run' {
            Mock Get-Service { if ($Name -ne 'none') { New-Object PSObject -Property @{ Status = @{ run = 'Running'; stop = 'Stopped' }[$Name] } } }
            Test-Check (& $check '{"service": "run"}') | Should -Be $true
            Test-Check (& $check '{"service": "stop"}') | Should -Be $false
            Test-Check (& $check '{"service": "none"}') | Should -Be $false
        }
        It 'sees programs that succeed' {
            Mock Invoke-Program { if ($Argv[0] -eq 'bad') { throw 'it failed' } }
            Test-Check (& $check '{"succeeds": ["good"]}') | Should -Be $true
            Test-Check (& $check '{"succeeds": ["bad"]}') | Should -Be $false
        }
        It 'says what it found' {
            Mock Get-RegistryValue { 'b' }
            Get-Finding (& $check '{"registry": {"key": "HKLM:\\k", "name": "n", "equals": "a"}}') | Should -Be "expected n a, found 'b'"
            Get-Finding (& $check "{`"all`": [$there, {`"port`": 1}]}") | Should -Be 'expected port 1, found none'
            Get-Finding (& $check '{"succeeds": ["a", "b c"]}') | Should -Be 'expected that a "b c" succeeds, and it does not'
            Get-Finding (& $check '{"service": "kubelet"}') | Should -Be 'expected service kubelet, found none'
            Get-Finding (& $check "{`"all`": [$there, $there]}") | Should -Be 'expected all of them at the same time'
            Get-Finding (& $check "{`"not`": $there}") | Should -Be 'expected something else'
        }
    }

    Context 'pipes' {
        It 'are listed by pattern' -Skip:($env:OS -ne 'Windows_NT' -or (Test-Path -LiteralPath 'HKCU:\Software\Wine')) {
            @(Get-Pipe 'no-such-pipe-').Count | Should -Be 0
        }
    }

    Context 'a restart' {
        It 'is wanted until the next one' {
            Mock Test-Path { $false }
            Mock Get-BootId { '7' }
            Test-RestartWanted | Should -Be $false
            Set-RestartWanted
            Test-RestartWanted | Should -Be $true
            Mock Get-BootId { '8' }
            Test-RestartWanted | Should -Be $false
        }
        It 'is wanted when Windows says so, but only once' {
            Mock Get-BootId { '9' }
            Mock Test-Path { $LiteralPath -like '*RebootPending' }
            $State.theirs = $false
            Test-RestartWanted | Should -Be $true
            $State.theirs = $true
            Test-RestartWanted | Should -Be $false
            Set-RestartWanted
            Test-RestartWanted | Should -Be $true
        }
    }

    Context 'the address of the machine' {
        It 'is the one from which the other end is reached' {
            foreach ($endpoint in @('127.0.0.1:6443', '[::1]:6443')) {
                "$(Get-SourceAddress $endpoint)" | Should -Be $endpoint.Substring(0, $endpoint.LastIndexOf(':')).Trim('[', ']')
            }
        }
        It 'that does not exist is told' {
            { Get-SourceAddress 'none.invalid:6443' } | Should -Throw
        }
        It 'is not counted where it is loopback' {
            @(Get-OwnNetwork) | Should -Not -Contain 'lo'
        }
    }
}
