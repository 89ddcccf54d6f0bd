# Tests of report.ps1: see TestSetup.ps1 for what they need.
Describe 'report.ps1' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        $full = [System.IO.Path]::Combine($Root, 'a-directory')
        [void] [System.IO.Directory]::CreateDirectory($full)
    }

    Context 'a line' {
        It 'has the check sum of RFC 1950' {
            Get-Adler32 'Wikipedia' | Should -Be '11e60398'
        }
        It 'is printable and of bounded length' {
            Get-ReportLine 7 1 'join' 'failed' 71 "a`r`nb" | Should -Match '^capw1 7 1 join failed 71 [0-9a-f]{8} a\?\?b$'
            (Get-ReportLine 7 1 'join' 'failed' 71 ('x' * 1000)).Length | Should -Be 274
            Get-ReportLine 7 1 'join' 'failed' 71 (('x' * 239) + ' y') | Should -Match 'x$'
        }
    }

    Context 'an argument' {
        It 'comes back as the C runtime reads it' {
            ConvertTo-Argument 'plain' | Should -Be 'plain'
            ConvertTo-Argument '' | Should -Be '""'
            ConvertTo-Argument 'a b' | Should -Be '"a b"'
            ConvertTo-Argument 'say "x"' | Should -Be '"say \"x\""'
            ConvertTo-Argument 'C:\a b\' | Should -Be '"C:\a b\\"'
        }
    }

    Context 'a property' {
        It 'may be missing' {
            $object = ConvertFrom-Json -InputObject '{"a": 1}'
            Get-Field $object 'a' 2 | Should -Be 1
            Get-Field $object 'b' 2 | Should -Be 2
        }
    }

    Context 'secrets' {
        It 'are cut out as the plan says' {
            Hide-Secret 'token abcdef.0123456789abcdef' | Should -Be 'token abcdef.0123456789abcdef'
            $Plan = ConvertFrom-Json -InputObject '{"redact": ["[a-z0-9]{6}[.][a-z0-9]{16}"]}'
            Hide-Secret 'token abcdef.0123456789abcdef' | Should -Be 'token [hidden]'
        }
        It 'stay hidden when the plan cannot be understood' {
            $Plan = ConvertFrom-Json -InputObject '{"redact": ["("]}'
            Hide-Secret 'token' | Should -Be '[hidden]'
            $Plan = ConvertFrom-Json -InputObject '{}'
            Hide-Secret 'token' | Should -Be '[hidden]'
        }
    }

    Context 'a log' {
        It 'is cut when it is long' {
            $log = [System.IO.Path]::Combine($Root, 'long.log')
            foreach ($line in @('one', 'two', 'three')) { Add-Line $log $line 3 }
            [System.IO.File]::ReadAllText($log) | Should -Be "three`r`n"
            [System.IO.File]::ReadAllText("$log.1") | Should -Be "two`r`n"
        }
        It 'grows when it cannot be cut' {
            $log = [System.IO.Path]::Combine($Root, 'uncut.log')
            [void] [System.IO.Directory]::CreateDirectory("$log.1")
            foreach ($line in @('one', 'two')) { Add-Line $log $line 3 }
            [System.IO.File]::ReadAllText($log) | Should -Be "one`r`ntwo`r`n"
        }
        It 'goes to another place when it cannot be written, and to none when that fails too' {
            $LogFile = $full
            Write-Log 'elsewhere'
            [System.IO.File]::ReadAllText($SpareLogFile) | Should -Match ' elsewhere\r\n$'
            $SpareLogFile = $full
            Write-Log 'nowhere'
        }
    }

    Context 'the number of a report' {
        BeforeEach {
            [System.IO.File]::Delete($ReportFile)
            [System.IO.File]::Delete($StateFile)
            [System.IO.File]::Delete("$StateFile.old")
        }
        It 'is the first one when nothing is known' {
            Get-LastSequence | Should -Be 0
        }
        It 'is the highest that any file knows, whatever else is in it' {
            [System.IO.File]::WriteAllText($StateFile, '{"boots":9,"sequence":4,"dig')
            [System.IO.File]::WriteAllText("$StateFile.old", "`0`0`0`0")
            Get-LastSequence | Should -Be 4
            [System.IO.File]::WriteAllText($ReportFile, "capw1 11 2 join done 0 00000000 x`r`ncapw1 12 2 j`0`0`0capw1 99999999999999999999 1")
            Get-LastSequence | Should -Be 12
        }
        It 'is found without a file that cannot be read' {
            [System.IO.File]::WriteAllText($StateFile, '{"sequence":4}')
            $held = [System.IO.File]::Open($StateFile, 'Open', 'ReadWrite', 'None')
            try { Get-LastSequence | Should -Be 0 } finally { $held.Dispose() }
        }
    }

    Context 'a report' {
        BeforeEach {
            $said = New-Object System.Collections.ArrayList
            $Journal.open = $false
            $Journal.lost = $false
            $State.sequence = [int64] 0
            $State.boots = 0
            [System.IO.File]::Delete($ReportFile)
            [System.IO.File]::Delete($StateFile)
            Mock Send-Serial { [void] $said.Add("$Port $Line") }
            Mock Send-GuestInfo { [void] $said.Add("guestinfo $Line") }
            Mock Send-KeyValue { [void] $said.Add("kvp $Line") }
        }
        It 'goes to every channel when nothing else is known' {
            Send-Report 'plan' 'failed' 11 'no disk'
            $line = [System.IO.File]::ReadAllText($ReportFile).Trim()
            $line | Should -Match '^capw1 1 0 plan failed 11 [0-9a-f]{8} no disk$'
            [string]::Join('|', $said.ToArray()) | Should -Be "COM1 $line|guestinfo $line|kvp $line"
            [System.IO.File]::ReadAllText($LogFile) | Should -Match 'plan failed 11'
        }
        It 'goes to the other channels when one fails' {
            Mock Send-Serial { throw 'the port is busy' }
            $ReportFile = $full
            Send-Report 'plan' 'failed' 11 'no port'
            $said.Count | Should -Be 2
            [System.IO.File]::ReadAllText($LogFile) | Should -Match 'report to serial:COM1: the port is busy'
            [System.IO.File]::ReadAllText($LogFile) | Should -Match 'report to file: '
        }
        It 'waits for a guest agent that reads the file' {
            # Where the tests run, a file that is open for reading may be written.
            $tries = @{ Count = 0 }
            Mock Start-Sleep
            Mock Add-Line {
                $tries.Count++
                if ($tries.Count -lt 3) { throw 'it is being read' }
            } -ParameterFilter { $Path -eq $ReportFile }
            Send-Report 'join' 'done' 0 'x'
            $tries.Count | Should -Be 3
            Should -Invoke Start-Sleep -Times 2 -Exactly
        }
        It 'goes where the plan says' {
            $Plan = ConvertFrom-Json -InputObject '{"redact": [], "report": ["serial:COM2"]}'
            Send-Report 'join' 'done' 0 'x'
            [string]::Join('|', $said.ToArray()) | Should -Match '^COM2 capw1 1 0 join done 0 [0-9a-f]{8} x$'
        }
        It 'goes on after the last one that was said' {
            [System.IO.File]::WriteAllText($ReportFile, "capw1 41 2 join done 0 00000000 x`r`n")
            Send-Report 'plan' 'failed' 11 'x'
            Send-Report 'plan' 'failed' 11 'y'
            [string]::Join('|', $said.ToArray()) | Should -Match 'kvp capw1 42 .*kvp capw1 43 '
        }
        It 'is said when neither state nor log can be written' {
            Mock Save-State { throw 'there is not enough space on the disk' }
            Mock Add-Line { throw 'there is not enough space on the disk' }
            $Journal.open = $true
            $State.sequence = [int64] 6
            $State.boots = 3
            Send-Report 'join' 'failed' 71 'x'
            $said.Count | Should -Be 3
            $said[0] | Should -Match '^COM1 capw1 7 3 join failed 71 '
            $Journal.lost | Should -Be $true
        }
        It 'of a failure says where it was' {
            $script = [System.IO.Path]::Combine($Root, 'throws.ps1')
            [System.IO.File]::WriteAllText($script, "`nthrow 'no disk'`n")
            try { & $script } catch { Send-Failure $_ }
            $said[0] | Should -Match ' plan failed 11 [0-9a-f]{8} throws\.ps1:2 no disk$'
        }
    }

    Context 'a failure' {
        It 'of a script that cannot be read is in that script' {
            $script = [System.IO.Path]::Combine($Root, 'bad.ps1')
            [System.IO.File]::WriteAllText($script, "`n`n`"found `$found: correct`"`n")
            $told = ''
            try { . $script } catch { $told = Get-Failure $_ }
            $told | Should -Match '^bad\.ps1:3 '
            $told | Should -Not -Match "`n"
        }
        It 'may have no place' {
            $exception = New-Object System.InvalidOperationException('no place')
            $record = New-Object System.Management.Automation.ErrorRecord($exception, 'x', 'NotSpecified', $null)
            Get-Failure $record | Should -Be ':0 no place'
        }
    }

    Context 'guestinfo' {
        BeforeAll {
            $programs = $env:ProgramFiles
            $env:ProgramFiles = [System.IO.Path]::Combine($Root, 'programs')
            $tools = [System.IO.Path]::Combine($env:ProgramFiles, 'VMware', 'VMware Tools')
            [void] [System.IO.Directory]::CreateDirectory($tools)
        }
        BeforeEach {
            $process = New-Object PSObject -Property @{ ExitCode = 0; Ended = $true; Killed = $false }
            $process.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('WaitForExit', { $this.Ended })))
            $process.PSObject.Members.Add((New-Object System.Management.Automation.PSScriptMethod('Kill', { $this.Killed = $true })))
            Mock Start-Program { $process }
        }
        It 'is left out without the tools' {
            Send-GuestInfo 'a b'
            Should -Invoke Start-Program -Times 0 -Exactly
        }
        It 'is set by the tool that is there' {
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($tools, 'vmtoolsd.exe'), '')
            Send-GuestInfo 'a b'
            Should -Invoke Start-Program -Times 1 -Exactly -ParameterFilter {
                $Path -like '*vmtoolsd.exe' -and $CommandLine -eq '--cmd "info-set guestinfo.capw.report a b"'
            }
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($tools, 'rpctool.exe'), '')
            Send-GuestInfo 'a b'
            Should -Invoke Start-Program -Times 1 -Exactly -ParameterFilter {
                $Path -like '*rpctool.exe' -and $CommandLine -eq '"info-set guestinfo.capw.report a b"'
            }
        }
        It 'fails with the tool' {
            $process.ExitCode = 1
            { Send-GuestInfo 'a b' } | Should -Throw '*ended with 1*'
            $process.Ended = $false
            { Send-GuestInfo 'a b' } | Should -Throw '*did not end within 5 seconds*'
            $process.Killed | Should -Be $true
        }
        It 'leaves the variable as it was' {
            $env:ProgramFiles = $programs
        }
    }

    Context 'the key-value pair' {
        BeforeEach {
            Mock New-ItemProperty
        }
        It 'is left out without the exchange service' {
            Mock Test-Path { $false }
            Send-KeyValue 'x'
            Should -Invoke New-ItemProperty -Times 0 -Exactly
        }
        It 'is written beside what the host sent' {
            Mock Test-Path { $true }
            Send-KeyValue 'x'
            Should -Invoke New-ItemProperty -Times 1 -Exactly -ParameterFilter { $Name -eq 'capw.report' -and $Value -eq 'x' }
        }
    }

    Context 'the serial port' {
        It 'is left out when there is none of that name' -Skip:($null -eq ('System.IO.Ports.SerialPort' -as [type])) {
            Send-Serial 'COM77' 'x'
        }
    }
}
