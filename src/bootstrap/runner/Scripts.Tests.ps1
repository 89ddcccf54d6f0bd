# Tests of scripts.ps1: see TestSetup.ps1 for what they need.
Describe 'scripts.ps1' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        $item = { param($text) ConvertFrom-Json -InputObject $text }
        $gibibyte = 1073741824
    }
    BeforeEach {
        $answers = @{}
        $called = New-Object System.Collections.ArrayList
        Mock Invoke-Program {
            $line = [string]::Join(' ', $Argv)
            [void] $called.Add($line)
            $Program.output = ''
            foreach ($part in $answers.Keys) { if ($line.Contains($part)) { $Program.output = $answers[$part] } }
        }
        Mock Get-BootId { '7' }
        Mock Start-Sleep
        Mock Test-Path { $false }
    }

    Context 'identity' {
        It 'is a Windows Server of that build' {
            $values = @{ InstallationType = 'Server Core'; CurrentBuildNumber = '20348'; UBR = 5000 }
            Mock Get-RegistryValue { $values[$Name] }
            Test-IdentityScript (& $item '{"build": 20348}') | Should -Be $true
            Test-IdentityScript (& $item '{"build": 26100}') | Should -Be $false
            { Set-IdentityScript (& $item '{"build": 26100}') } | Should -Throw 'expected Windows Server of build 26100, found Server Core 20348.5000'
            $values.InstallationType = 'Client'
            Test-IdentityScript (& $item '{"build": 20348}') | Should -Be $false
        }
    }

    Context 'free space' {
        BeforeEach {
            $Disk.grown = $false
            $room = @{ Free = 10; Size = 40 * $gibibyte; Most = 100 * $gibibyte; Behind = @() }
            Mock Get-FreeGibibytes { $room.Free }
            Mock Get-PartitionSupportedSize { New-Object PSObject -Property @{ SizeMax = $room.Most } }
            Mock Get-Partition { New-Object PSObject -Property @{ Size = $room.Size; DiskNumber = 3; Offset = 1000 } } -ParameterFilter { $DriveLetter }
            Mock Get-Partition { $room.Behind } -ParameterFilter { $DiskNumber -eq 3 }
            Mock Resize-Partition { $room.Free += ($Size - $room.Size) / $gibibyte; $room.Size = $Size }
            $space = & $item '{"drive": "C", "gibibytes": 20}'
        }
        It 'is made of what the disk has' {
            Test-FreeSpaceScript $space | Should -Be $false
            Set-FreeSpaceScript $space
            Test-FreeSpaceScript $space | Should -Be $true
            $room.Size | Should -Be (100 * $gibibyte)
        }
        It 'is made of all that the disk has, also when there is enough' {
            $room.Free = 30
            Test-FreeSpaceScript $space | Should -Be $false
            Set-FreeSpaceScript $space
            $room.Size | Should -Be (100 * $gibibyte)
            Test-FreeSpaceScript $space | Should -Be $true
        }
        It 'may be enough on a partition that cannot grow' {
            $room.Free = 30
            Mock Resize-Partition { throw 'not supported' }
            Set-FreeSpaceScript $space
            Test-FreeSpaceScript $space | Should -Be $true
            $room.Free = 10
            { Set-FreeSpaceScript $space } | Should -Throw 'expected 20 GiB free on C:, found 10; it cannot be extended: not supported'
        }
        It 'tells what lies behind the partition' {
            $room.Most = $room.Size
            $room.Behind = @((New-Object PSObject -Property @{ Offset = 10; Type = 'System' }), (New-Object PSObject -Property @{ Offset = 2000; Type = 'Recovery' }))
            { Set-FreeSpaceScript $space } | Should -Throw 'expected 20 GiB free on C:, found 10; a partition behind it (Recovery) keeps it from being extended'
        }
        It 'may lack' {
            $room.Most = 40 * $gibibyte
            { Set-FreeSpaceScript $space } | Should -Throw 'expected 20 GiB free on C:, found 10*'
            Should -Invoke Resize-Partition -Times 0 -Exactly
        }
    }

    Context 'the space of a drive' {
        It 'is counted in whole GiB' {
            $drive = [System.IO.Path]::GetPathRoot($Root)
            Get-FreeGibibytes $drive | Should -Be ([System.Math]::Floor((New-Object System.IO.DriveInfo($drive)).AvailableFreeSpace / $gibibyte))
        }
    }

    Context 'the clock' {
        BeforeEach {
            $clock = & $item '{"url": "https://api.example.com:6443/healthz", "within": 30, "seconds": 60}'
        }
        It 'is held against the header Date' {
            $answers['curl.exe'] = "HTTP/1.1 401 Unauthorized`r`nDate: $([System.DateTime]::UtcNow.AddSeconds(-90).ToString('r'))`r`n"
            Test-ClockScript $clock | Should -Be $false
            $clock.within = 120
            Test-ClockScript $clock | Should -Be $true
        }
        It 'is not good when no answer has the time' {
            $answers['curl.exe'] = 'HTTP/1.0 400 Bad Request'
            { Get-ClockDifference $clock.url } | Should -Throw
        }
        It 'is set by the time service' {
            $away = @{ Seconds = -90 }
            Mock Get-ClockDifference { $away.Seconds }
            Mock Invoke-Program { $away.Seconds = 1; throw 'a warning' }
            Set-ClockScript $clock
            Should -Invoke Invoke-Program -Times 1 -Exactly -ParameterFilter { $Argv[1] -eq '/resync' }
        }
        It 'has its time to become right' {
            Mock Get-ClockDifference { 90 }
            $clock.seconds = -1
            { Set-ClockScript $clock } | Should -Throw 'expected a clock within 30 seconds of https://api.example.com:6443/healthz, found 90'
        }
    }

    Context 'the proxy of WinHTTP' {
        It 'is shown as it was set' {
            $proxy = & $item '{"server": "http://proxy:3128", "bypass": "*.local;10.*"}'
            Test-WinHttpProxyScript $proxy | Should -Be $false
            Set-WinHttpProxyScript $proxy
            $called[1] | Should -Match 'winhttp set proxy proxy-server=http://proxy:3128 bypass-list=\*\.local;10\.\*$'
            $answers['show proxy'] = "Proxyserver : http://proxy:3128`r`nUmgehung : *.local;10.*"
            Test-WinHttpProxyScript $proxy | Should -Be $true
        }
    }

    Context 'the hypervisor' {
        It 'starts with Windows' {
            $answers['/enum'] = "hypervisorlaunchtype    Off`r`n"
            Test-HypervisorScript $null | Should -Be $false
            Set-HypervisorScript $null
            Test-RestartWanted | Should -Be $true
            $answers['/enum'] = "nx OptOut`r`nhypervisorlaunchtype    Auto`r`n"
            Test-HypervisorScript $null | Should -Be $true
        }
    }

    Context 'exclusions of Defender' {
        BeforeEach {
            $known = New-Object PSObject -Property @{ ExclusionPath = @('C:\a'); ExclusionProcess = $null }
            Mock Get-MpPreference { $known }
            Mock Add-MpPreference { $known.ExclusionPath = $ExclusionPath; $known.ExclusionProcess = $ExclusionProcess }
            $exclusions = & $item '{"paths": ["C:\\a", "C:\\b"], "processes": ["C:\\k\\kubelet.exe"]}'
        }
        It 'are added' {
            Test-DefenderExclusionsScript $exclusions | Should -Be $false
            Set-DefenderExclusionsScript $exclusions
            Test-DefenderExclusionsScript $exclusions | Should -Be $true
        }
        It 'are not needed without Defender' {
            Mock Get-Command { $null } -ParameterFilter { $Name -eq 'Get-MpPreference' }
            Test-DefenderExclusionsScript $exclusions | Should -Be $true
        }
    }

    Context 'the firewall' {
        It 'is on in every profile' {
            $profiles = @{ Public = 'False' }
            Mock Get-NetFirewallProfile { foreach ($state in @('True', $profiles.Public)) { New-Object PSObject -Property @{ Enabled = $state } } }
            Mock Set-NetFirewallProfile { $profiles.Public = $Enabled }
            Test-FirewallOnScript $null | Should -Be $false
            Set-FirewallOnScript $null
            Test-FirewallOnScript $null | Should -Be $true
        }
    }

    Context 'ports' {
        It 'that are dynamic are read from what netsh says in any language' {
            $answers['show dynamicportrange'] = "Protokoll tcp`r`n----`r`nStartport      : 33000`r`nAnzahl von Ports: 32536`r`n"
            $range = & $item '{"protocol": "TCP", "start": 33000, "count": 32536}'
            Test-DynamicPortsScript $range | Should -Be $true
            $range.start = 49152
            Test-DynamicPortsScript $range | Should -Be $false
            Set-DynamicPortsScript $range
            $called[2] | Should -Match 'set dynamicportrange protocol=TCP startport=49152 numberofports=32536$'
        }
        It 'that are reserved may lie within a larger range' {
            $answers['show excludedportrange'] = "Start Port    End Port`r`n----------    --------`r`n     30000       32767     *`r`n"
            Test-ReservedPortsScript (& $item '{"protocol": "TCP", "start": 30000, "count": 2768}') | Should -Be $true
            $range = & $item '{"protocol": "TCP", "start": 30000, "count": 2769}'
            Test-ReservedPortsScript $range | Should -Be $false
            Set-ReservedPortsScript $range
            $called[2] | Should -Match 'add excludedportrange protocol=TCP startport=30000 numberofports=2769 store=persistent$'
        }
    }

    Context 'the domain' {
        It 'is joined with the next restart' {
            $computer = New-Object PSObject -Property @{ PartOfDomain = $false; Domain = 'WORKGROUP' }
            Mock Get-CimInstance { $computer }
            $join = & $item '{"domain": "corp.example.com", "blob": "C:\\blob", "seconds": 60}'
            Test-DomainJoinScript $join | Should -Be $false
            Set-DomainJoinScript $join
            $called[0] | Should -Match 'djoin\.exe /requestodj /loadfile C:\\blob /windowspath .* /localos$'
            Test-DomainJoinScript $join | Should -Be $true
            Test-RestartWanted | Should -Be $true
            Mock Get-BootId { '8' }
            Test-DomainJoinScript $join | Should -Be $false
            $computer.PartOfDomain = $true
            $computer.Domain = 'CORP.example.com'
            Test-DomainJoinScript $join | Should -Be $true
        }
    }

    Context 'a plug-in for credentials' {
        BeforeEach {
            $plugin = & $item '{"clsid": "{01234567-0123-0123-0123-0123456789AB}"}'
        }
        It 'is in the list' {
            Test-CredentialPluginScript $plugin | Should -Be $false
            Mock Test-Path { $true } -ParameterFilter { $LiteralPath -like 'HKLM:*\COMClasses\{0*' }
            Test-CredentialPluginScript $plugin | Should -Be $true
        }
        It 'gets there by taking the list' -Skip:($env:OS -ne 'Windows_NT') {
            $rights = New-Object System.Collections.ArrayList
            $list = New-Object PSObject
            $list.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('GetAccessControl', { New-Object System.Security.AccessControl.RegistrySecurity })))
            Mock Get-Item { $list }
            Mock Set-KeySecurity { [void] $rights.Add($Right) }
            Mock New-Item
            Set-CredentialPluginScript $plugin
            [string]::Join(' ', $rights.ToArray()) | Should -Be 'TakeOwnership ChangePermissions'
            Should -Invoke New-Item -Times 1 -Exactly -ParameterFilter { $Path -like '*COMClasses\{0*' }
        }
    }
}
