# Tests of items.ps1: see TestSetup.ps1 for what they need.
Describe 'items.ps1' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        $item = { param($text) ConvertFrom-Json -InputObject $text }
        $abc = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
        $below = { param($name) [System.IO.Path]::Combine($Root, $name) }
    }
    BeforeEach {
        Mock Get-BootId { '7' }
    }

    Context 'a directory' {
        It 'exists with its access' {
            $known = @{}
            Mock Test-Access { $Directory -and $known.ContainsKey($Path) }
            Mock Set-Access { $known[$Path] = $Access }
            $made = New-Object PSObject -Property @{ paths = @((& $below 'd1'), (& $below 'd2')); access = 'admins' }
            Test-DirectoryItem $made | Should -Be $false
            Set-DirectoryItem $made
            Test-DirectoryItem $made | Should -Be $true
            $known.Clear()
            Test-DirectoryItem $made | Should -Be $false
        }
    }

    Context 'a file' {
        BeforeEach {
            Mock Test-Access { $true }
            Mock Set-Access
            Mock Write-Through { [System.IO.File]::WriteAllBytes($Path, $Bytes) }
            [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::Combine($Payload, 'files'))
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($Payload, 'files', 'a'), 'abc')
            $file = New-Object PSObject -Property @{ path = [System.IO.Path]::Combine($Root, 'new', 'a.txt'); source = 'files/a'; sha256 = $abc; access = 'admins' }
            if ([System.IO.File]::Exists($file.path)) { [System.IO.File]::Delete($file.path) }
        }
        It 'has its bytes and its access' {
            Test-FileItem $file | Should -Be $false
            Set-FileItem $file
            Test-FileItem $file | Should -Be $true
            [System.IO.File]::ReadAllText($file.path) | Should -Be 'abc'
            # Before it has content, and again where it replaces another one.
            Should -Invoke Set-Access -Times 2 -Exactly -ParameterFilter { $Access -eq 'admins' -and -not $Directory }
            Should -Invoke Write-Through -Times 1 -Exactly -ParameterFilter { $Path -like '*a.txt.new' }
            [System.IO.File]::WriteAllText($file.path, 'abd')
            Test-FileItem $file | Should -Be $false
            Set-FileItem $file
            Test-FileItem $file | Should -Be $true
            Mock Test-Access { $false }
            Test-FileItem $file | Should -Be $false
        }
        It 'is refused when the payload has another one' {
            $file.sha256 = '00'
            { Set-FileItem $file } | Should -Throw 'expected files/a with digest 00, found another'
            [System.IO.File]::Exists($file.path) | Should -Be $false
        }
    }

    Context 'a registry value' {
        BeforeEach {
            $values = @{}
            $kinds = New-Object PSObject
            $kinds.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('GetValueKind', { param($name) $values["$name kind"] })))
            Mock Get-Item { $kinds }
            Mock Get-RegistryValue { $values[$Name] }
            Mock Test-Path { $false }
            Mock New-Item
            Mock New-ItemProperty {
                $values[$Name -replace '^\(default\)$', ''] = $Value
                $values["$($Name -replace '^\(default\)$', '') kind"] = $PropertyType
            }
        }
        It 'of type <type> has that data' -TestCases @(
            @{ type = 'string'; data = '"a"'; other = '"A"' }
            @{ type = 'expandString'; data = '"%SystemRoot%"'; other = '"C:\\Windows"' }
            @{ type = 'dword'; data = '4294967295'; other = '1' }
            @{ type = 'multiString'; data = '["a", "b"]'; other = '["a"]' }
        ) {
            $one = & $item "{`"key`": `"HKLM:\\k`", `"name`": `"n`", `"data`": {`"$type`": $data}}"
            Test-RegistryItem $one | Should -Be $false
            Set-RegistryItem $one
            Test-RegistryItem $one | Should -Be $true
            Test-RegistryItem (& $item "{`"key`": `"HKLM:\\k`", `"name`": `"n`", `"data`": {`"$type`": $other}}") | Should -Be $false
            $values['n kind'] = 'Binary'
            Test-RegistryItem $one | Should -Be $false
            Should -Invoke New-Item -Times 1 -Exactly
        }
        It 'holds numbers above two thousand millions' {
            (Get-RegistryData (& $item '{"data": {"dword": 4294967295}}')).Value | Should -Be -1
        }
        It 'may be that of the key, and ask for a restart' {
            Mock Test-Path { $true } -ParameterFilter { $LiteralPath -eq 'HKLM:\k' }
            $one = & $item '{"key": "HKLM:\\k", "name": "", "data": {"string": "a"}, "restart": true}'
            Set-RegistryItem $one
            Test-RegistryItem $one | Should -Be $true
            Test-RestartWanted | Should -Be $true
            Should -Invoke New-Item -Times 0 -Exactly
            # A kill right after the change does not lose the restart.
            [System.IO.File]::Delete([System.IO.Path]::Combine($StateDirectory, 'restart-wanted'))
            Mock New-ItemProperty { throw 'killed' }
            { Set-RegistryItem $one } | Should -Throw
            Test-RestartWanted | Should -Be $true
        }
    }

    Context 'the environment of a service' {
        BeforeEach {
            $set = New-Object System.Collections.ArrayList
            Mock Get-RegistryValue { $set.ToArray() }
            Mock Set-TextList { foreach ($line in $Texts) { [void] $set.Add($line) } }
            Mock Set-KeySecurity
            Mock New-SecretKeySecurity { 'for administrators' }
            Mock Get-Rules { "$Security" }
            $service = New-Object PSObject -Property @{ Readers = 'for administrators' }
            $service.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('GetAccessControl', { $this.Readers })))
            Mock Get-Item { $service }
        }
        It 'is a list of lines' {
            $one = & $item '{"service": "kubelet", "variables": {"plain": ["A=1", "B=2"]}}'
            Test-ServiceEnvironmentItem $one | Should -Be $false
            Set-ServiceEnvironmentItem $one
            Test-ServiceEnvironmentItem $one | Should -Be $true
            Should -Invoke Set-KeySecurity -Times 0 -Exactly
        }
        It 'may be secret' {
            [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::Combine($Payload, 'secret'))
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($Payload, 'secret', 'env'), "A=1`nB=2")
            $one = & $item "{`"service`": `"kubelet`", `"variables`": {`"secret`": {`"source`": `"secret/env`", `"sha256`": `"$(Get-TextDigest "A=1`nB=2")`"}}}"
            Test-ServiceEnvironmentItem $one | Should -Be $false
            Set-ServiceEnvironmentItem $one
            Test-ServiceEnvironmentItem $one | Should -Be $true
            Should -Invoke Set-KeySecurity -Times 1 -Exactly -ParameterFilter { $Path -like '*\Services\kubelet' }
            Get-Leak { Set-ServiceEnvironmentItem $one; Test-ServiceEnvironmentItem $one } 'B=2' | Should -Be ''
            $set.Clear()
            foreach ($line in @('A=1', 'B=2')) { [void] $set.Add($line) }
            $service.Readers = 'for users'
            Test-ServiceEnvironmentItem $one | Should -Be $false
            $service.Readers = 'for administrators'
            [void] $set.Add('C=3')
            Test-ServiceEnvironmentItem $one | Should -Be $false
        }
    }

    Context 'a key with secrets' {
        It 'is for SYSTEM and administrators' -Skip:($env:OS -ne 'Windows_NT') {
            (New-SecretKeySecurity).GetSecurityDescriptorSddlForm('Access') | Should -Be 'D:P(A;CI;KA;;;SY)(A;CI;KA;;;BA)'
        }
    }

    Context 'a variable of the machine' {
        It 'has a value' {
            $one = & $item '{"name": "CAPW_TEST", "value": "1"}'
            $had = [System.Environment]::GetEnvironmentVariable('CAPW_TEST', 'Machine')
            Test-EnvironmentItem $one | Should -Be $false
            Set-EnvironmentItem $one
            # Only Windows keeps variables of the machine.
            Test-EnvironmentItem $one | Should -Be ($env:OS -eq 'Windows_NT')
            [System.Environment]::SetEnvironmentVariable('CAPW_TEST', $had, 'Machine')
        }
    }

    Context 'a feature' {
        BeforeEach {
            $states = @{ Containers = 'Disabled'; Telnet = 'Enabled' }
            Mock Get-WindowsOptionalFeature { if ($states.ContainsKey($FeatureName)) { New-Object PSObject -Property @{ State = $states[$FeatureName] } } }
            Mock Invoke-Program {
                $name = $Argv[-3].Substring(13)
                $states[$name] = @{ $true = 'EnablePending'; $false = 'DisablePending' }[$Argv[2] -eq '/Enable-Feature']
                $Program.code = 3010
            }
            Mock Test-Path { $false }
        }
        It 'is enabled' {
            $one = & $item '{"names": ["Containers"], "state": "enabled", "seconds": 900}'
            Test-FeatureItem $one | Should -Be $false
            Set-FeatureItem $one
            Test-FeatureItem $one | Should -Be $true
            Test-RestartWanted | Should -Be $true
            Should -Invoke Invoke-Program -Times 1 -Exactly -ParameterFilter { "$($Argv[1..3])" -eq '/Online /Enable-Feature /All' }
        }
        It 'is disabled' {
            $one = & $item '{"names": ["Telnet"], "state": "disabled", "seconds": 900}'
            Test-FeatureItem $one | Should -Be $false
            Set-FeatureItem $one
            Test-FeatureItem $one | Should -Be $true
        }
        It 'that Windows does not know is off, and cannot be on: 5.1 throws' {
            Mock Get-WindowsOptionalFeature { throw (New-Object System.Runtime.InteropServices.COMException('Feature name SMB1Protocol is unknown.', 0x800f080c)) }
            Test-FeatureItem (& $item '{"names": ["SMB1Protocol"], "state": "disabled"}') | Should -Be $true
            { Test-FeatureItem (& $item '{"names": ["SMB1Protocol"], "state": "enabled"}') } | Should -Throw '*does not know*'
            Mock Get-WindowsOptionalFeature { throw (New-Object System.Runtime.InteropServices.COMException('The RPC server is unavailable.', 0x800706ba)) }
            { Test-FeatureItem (& $item '{"names": ["SMB1Protocol"], "state": "disabled"}') } | Should -Throw '*RPC*'
        }
        It 'that Windows does not know is off, and cannot be on' {
            Test-FeatureItem (& $item '{"names": ["SMB1Protocol"], "state": "disabled"}') | Should -Be $true
            { Test-FeatureItem (& $item '{"names": ["SMB1Protocol"], "state": "enabled"}') } | Should -Throw '*does not know*'
        }
    }

    Context 'a rule of the firewall' {
        BeforeEach {
            $rules = @{}
            Mock Get-NetFirewallRule { $rules[$Name] }
            Mock Remove-NetFirewallRule { $rules.Remove($Name) }
            Mock New-NetFirewallRule {
                $rules[$Name] = New-Object PSObject -Property @{
                    Enabled = 'True'; Direction = $Direction; Action = $Action; Profile = $Profile; Description = $Description
                    Said = "L=$LocalPort R=$RemotePort A=$RemoteAddress"
                }
            }
        }
        It 'is the one that was asked for' {
            $one = & $item '{"name": "r", "direction": "inbound", "action": "allow", "protocol": "TCP", "ports": ["10250"], "remote": ["10.0.0.0/8"]}'
            Test-FirewallItem $one | Should -Be $false
            Set-FirewallItem $one
            Test-FirewallItem $one | Should -Be $true
            $rules['r'].Said | Should -Be 'L=10250 R= A=10.0.0.0/8'
            $two = & $item '{"name": "r", "direction": "outbound", "action": "block", "protocol": "TCP", "ports": ["80", "443"]}'
            Test-FirewallItem $two | Should -Be $false
            Set-FirewallItem $two
            Test-FirewallItem $two | Should -Be $true
            $rules['r'].Said | Should -Be 'L= R=80 443 A='
        }
    }

    Context 'a command' {
        It 'without a check is run once' {
            Mock Invoke-Program { $Program.code = 0 }
            $one = & $item '{"id": "user-a", "kind": "command", "argv": ["a.exe"], "directory": "C:\\", "seconds": 5}'
            Test-CommandItem $one | Should -Be $false
            Set-CommandItem $one
            Test-CommandItem $one | Should -Be $true
        }
        It 'may have arguments in a form of its own' {
            Mock Invoke-Program { $Program.code = 0 }
            Set-CommandItem (& $item '{"id": "user-r", "kind": "command", "argv": ["msiexec.exe", "/qn"], "raw": "N=\"a b\"", "directory": "C:\\", "seconds": 5}')
            Should -Invoke Invoke-Program -Times 1 -Exactly -ParameterFilter { $Raw -ceq 'N="a b"' -and "$Argv" -ceq 'msiexec.exe /qn' }
        }
        It 'with a check is done when that holds' {
            Mock Invoke-Program
            $there = & $below 'there'
            $one = New-Object PSObject -Property @{ id = 'user-c'; argv = @('c.exe'); directory = 'C:\'; seconds = 5; check = New-Object PSObject -Property @{ file = $there } }
            Test-CommandItem $one | Should -Be $false
            Set-CommandItem $one
            [System.IO.File]::WriteAllText($there, '')
            Test-CommandItem $one | Should -Be $true
        }
        It 'asks for a restart when its exit code says so' {
            Mock Invoke-Program { $Program.code = 3010 }
            Mock Test-Path { $false }
            $codes = '{"success": [0], "restart": [3010]}'
            $one = & $item "{`"id`": `"user-b`", `"argv`": [`"b.exe`"], `"directory`": `"C:\\`", `"seconds`": 5, `"exitCodes`": $codes}"
            Set-CommandItem $one
            Test-RestartWanted | Should -Be $true
            Should -Invoke Invoke-Program -Times 1 -Exactly -ParameterFilter { "$Success" -eq '0 3010' }
        }
    }

    Context 'a script' {
        It 'is one that the runner has' {
            Mock Test-FirewallOnScript { $true }
            Mock Set-FirewallOnScript { 'said too much' }
            Test-ScriptItem (& $item '{"script": "firewallOn"}') | Should -Be $true
            Set-ScriptItem (& $item '{"script": "firewallOn"}') | Should -Be $null
            { Test-ScriptItem (& $item '{"script": "moon"}') } | Should -Throw "*'moon'*"
        }
    }

    Context 'a wait' {
        It 'is over when the check holds' {
            $tries = New-Object System.Collections.ArrayList
            Mock Start-Sleep { [void] $tries.Add(1) }
            Mock Test-Check { $tries.Count -ge 2 }
            $one = & $item '{"check": {"port": 1}, "seconds": 60}'
            Test-WaitItem $one | Should -Be $false
            Set-WaitItem $one
            Test-WaitItem $one | Should -Be $true
        }
        It 'has its time' {
            Mock Start-Sleep
            { Set-WaitItem (& $item '{"check": {"file": "/no/such/file"}, "seconds": -1}') } | Should -Throw '*found none within -1 seconds'
        }
    }

    Context 'a restart' {
        It 'is true when none is wanted' {
            Mock Test-RestartWanted { $false }
            Test-RebootItem $null | Should -Be $true
            Mock Test-RestartWanted { $true }
            Test-RebootItem $null | Should -Be $false
        }
    }

    Context 'what must be absent' {
        It 'is removed, tasks last' {
            $order = New-Object System.Collections.ArrayList
            $tasks = New-Object System.Collections.ArrayList
            [void] $tasks.Add('capw')
            Mock Get-ScheduledTask { if ($tasks.Contains($TaskName)) { 'task' } }
            Mock Unregister-ScheduledTask { $tasks.Remove($TaskName); [void] $order.Add("task $([System.IO.Directory]::Exists((& $below 'gone')))") }
            [void] [System.IO.Directory]::CreateDirectory((& $below 'gone'))
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine((& $below 'gone'), 'a'), '')
            $one = New-Object PSObject -Property @{ paths = @((& $below 'gone'), (& $below 'never')); tasks = @('capw') }
            Test-AbsentItem $one | Should -Be $false
            Set-AbsentItem $one
            Test-AbsentItem $one | Should -Be $true
            [string]::Join('|', $order.ToArray()) | Should -Be 'task False'
            [void] $tasks.Add('capw')
            Test-AbsentItem $one | Should -Be $false
        }
    }
}
