# Tests of what runs after the join, logs.ps1, network.ps1 and routes.ps1: see TestSetup.ps1 for what they need.
Describe 'the tasks of a node' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        $log = [System.IO.Path]::Combine($Root, 'network.log')
    }
    BeforeEach {
        [System.IO.File]::Delete($log)
    }

    Context 'logs' {
        It 'go on while others write them' {
            $written = [System.IO.Path]::Combine($Root, 'a.log')
            $writer = New-Object System.IO.FileStream($written, [System.IO.FileMode]::Append, [System.IO.FileAccess]::Write, [System.IO.FileShare]::ReadWrite)
            try {
                foreach ($byte in @(97, 98, 99)) {
                    $writer.WriteByte($byte)
                    $writer.Flush()
                    & "$PSScriptRoot/logs.ps1" -Paths "$written|$written.none" -Megabytes 0 -Keep 2
                }
            } finally { $writer.Dispose() }
            [System.IO.File]::ReadAllText("$written.1") | Should -Match 'c$'
            [System.IO.File]::Exists("$written.2") | Should -Be $true
            [System.IO.File]::Exists("$written.3") | Should -Be $false
        }
        It 'are cut even if another one cannot be opened' {
            $held = [System.IO.Path]::Combine($Root, 'held.log')
            $free = [System.IO.Path]::Combine($Root, 'free.log')
            foreach ($file in @($held, $free)) { [System.IO.File]::WriteAllText($file, 'x') }
            $writer = [System.IO.File]::Open($held, 'Open', 'ReadWrite', 'None')
            try { & "$PSScriptRoot/logs.ps1" -Paths "$held|$free" -Megabytes 0 } finally { $writer.Dispose() }
            $LASTEXITCODE | Should -Be 1
            [System.IO.File]::Exists("$free.1") | Should -Be $true
        }
        It 'that are short are left alone' {
            $short = [System.IO.Path]::Combine($Root, 'short.log')
            [System.IO.File]::WriteAllText($short, 'x')
            & "$PSScriptRoot/logs.ps1" -Paths $short
            [System.IO.File]::Exists("$short.1") | Should -Be $false
        }
    }

    Context 'endpoints of containers' {
        BeforeAll {
            $one = '1' * 64
            $two = '2' * 64
            $three = '3' * 64
        }
        BeforeEach {
            $removed = New-Object System.Collections.ArrayList
            $running = New-Object System.Collections.ArrayList
            Mock Start-Sleep
            Mock Get-CimInstance
            Mock Get-ComputeProcess { foreach ($id in $running.ToArray()) { New-Object PSObject -Property @{ Id = $id } } }
            Mock Get-HnsEndpoint {
                foreach ($name in @("${one}_l2bridge", "${two}_l2bridge", "${three}_l2bridge", 'Ethernet')) {
                    New-Object PSObject -Property @{ Id = $name.Substring(0, 1); Name = $name }
                }
            }
            Mock Remove-HnsEndpoint { [void] $removed.Add('x') }
        }
        It 'go when two looks have not found them' {
            [void] $running.Add($one)
            [void] $running.Add("$two@vm")
            & "$PSScriptRoot/network.ps1" -Log $log
            $removed.Count | Should -Be 1
            [System.IO.File]::ReadAllText($log) | Should -Match " endpoint 3 ${three}_l2bridge removed\r\n"
        }
        It 'stay when a process looks after their container' {
            Mock Get-ComputeProcess
            Mock Get-CimInstance {
                foreach ($line in @($null, "shim.exe -namespace x -id $one", "shim.exe -id $two", "shim.exe -ID $($three.ToUpperInvariant())")) {
                    New-Object PSObject -Property @{ CommandLine = $line }
                }
            }
            & "$PSScriptRoot/network.ps1" -Log $log
            Should -Invoke Start-Sleep -Times 0 -Exactly
        }
        It 'stay when their container appears meanwhile' {
            Mock Start-Sleep { foreach ($id in @($one, $two, $three)) { [void] $running.Add($id) } }
            & "$PSScriptRoot/network.ps1" -Log $log
            $removed.Count | Should -Be 0
        }
        It 'all belong to containers that run' {
            foreach ($id in @($one, $two, $three)) { [void] $running.Add($id) }
            & "$PSScriptRoot/network.ps1" -Log $log
            Should -Invoke Start-Sleep -Times 0 -Exactly
        }
        It 'that cannot be removed are noted' {
            Mock Remove-HnsEndpoint { throw 'it is busy' }
            & "$PSScriptRoot/network.ps1" -Log $log
            @([System.IO.File]::ReadAllLines($log) | Where-Object { $_ -match 'cannot be removed: it is busy$' }).Count | Should -Be 3
        }
        It 'do not exist without the feature Containers' {
            Mock Get-Command { $null } -ParameterFilter { $Name -eq 'Get-HnsEndpoint' }
            & "$PSScriptRoot/network.ps1" -Log $log
            Should -Invoke Get-HnsEndpoint -Times 0 -Exactly
        }
    }

    Context 'routes' {
        BeforeAll {
            $null = New-Item -Path 'function:global:Add-Route' -Value { param([string[]] $Route) } -Force
        }
        It 'that are gone are put back' {
            Mock Get-NetRoute { New-Object PSObject -Property @{ DestinationPrefix = '10.1.0.0/16'; NextHop = '192.168.1.1' } }
            Mock Add-Route { ' OK! ' }
            & "$PSScriptRoot/routes.ps1" -Routes '10.1.0.0/16,10.1.0.0,255.255.0.0,192.168.1.1,5|10.2.0.0/16,10.2.0.0,255.255.0.0,192.168.1.1,5' -Log $log
            Should -Invoke Add-Route -Times 1 -Exactly -ParameterFilter { "$Route" -eq '10.2.0.0 MASK 255.255.0.0 192.168.1.1 METRIC 5' }
            [System.IO.File]::ReadAllText($log) | Should -Match ' route 10\.2\.0\.0/16 by 192\.168\.1\.1 was gone; put back: OK!\r\n$'
        }
    }
}
