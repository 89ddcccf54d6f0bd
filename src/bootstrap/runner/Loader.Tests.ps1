# Tests of loader.ps1, with an archive whose run.ps1 is made for each case: see TestSetup.ps1 for what they need.
Describe 'loader.ps1' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        $loader = "$PSScriptRoot/loader.ps1"
        $kept = [System.IO.Path]::Combine($Root, 'payload.gz')
        $note = [System.IO.Path]::Combine($Root, 'ran')
        # What the runner is in most cases: it notes how it was called.
        $usual = "param(`$Source, [switch] `$Locked)`n[System.IO.File]::WriteAllText('$note', `"`$Source `$Locked`")`nexit 0`n"

        # The archive of these files, as archive.rs packs it.
        $pack = {
            param($files)
            $memory = New-Object System.IO.MemoryStream
            $gzip = New-Object System.IO.Compression.GZipStream($memory, [System.IO.Compression.CompressionMode]::Compress)
            foreach ($name in @($files.Keys | Sort-Object)) {
                $content = [System.Text.Encoding]::UTF8.GetBytes($files[$name])
                $head = [System.Text.Encoding]::ASCII.GetBytes("$(Get-Sha256 $content) $($content.Length) $name`n")
                $gzip.Write($head, 0, $head.Length)
                $gzip.Write($content, 0, $content.Length)
            }
            $gzip.Dispose()
            return , $memory.ToArray()
        }
        # The loader as user data, the way cloudbase.rs makes it.
        $deliver = {
            param($packed)
            $text = [System.IO.File]::ReadAllText($loader)
            foreach ($part in @('files.ps1', 'report.ps1')) {
                $text = $text.Replace(". `"`$PSScriptRoot/$part`"", [System.IO.File]::ReadAllText("$PSScriptRoot/$part"))
            }
            $text = $text.Replace("@'`n`n'@`n", "@'`n$([System.Convert]::ToBase64String($packed))`n'@`n")
            $script = [System.IO.Path]::Combine($Root, 'user-data.ps1')
            [System.IO.File]::WriteAllText($script, $text)
            return $script
        }
        # As on a drive: a small loader, with the archive in another file.
        $deliverOnDrive = {
            param($packed)
            $script = & $deliver $packed
            $text = [System.IO.File]::ReadAllText($script).Replace([System.Convert]::ToBase64String($packed), '')
            [System.IO.File]::WriteAllText($script, $text.Replace("`$archiveDigest = ''", "`$archiveDigest = '$(Get-Sha256 $packed)'"))
            return $script
        }
        $read = { param($name) return [System.IO.File]::ReadAllText([System.IO.Path]::Combine($Payload, $name)) }
    }
    BeforeEach {
        foreach ($directory in @($Payload, [System.IO.Path]::Combine($Root, 'state'))) {
            if ([System.IO.Directory]::Exists($directory)) { [System.IO.Directory]::Delete($directory, $true) }
        }
        [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::Combine($Root, 'state'))
        foreach ($file in @($kept, $note, $ReportFile, $LogFile)) { [System.IO.File]::Delete($file) }
        $said = New-Object System.Collections.ArrayList
        Mock Protect-Directory
        Mock Send-Serial { [void] $said.Add($Line) }
        Mock Send-GuestInfo
        Mock Send-KeyValue
        Mock Start-Sleep
        $files = @{ 'node.json' = '{}'; 'runner/run.ps1' = $usual; 'secret/token' = 'abc' }
    }

    Context 'user data' {
        It 'unpacks the payload, keeps the archive and starts the runner' {
            $script = & $deliver (& $pack $files)
            & $script -Source cloudbase -Root $Root
            $LASTEXITCODE | Should -Be 0
            [System.IO.File]::ReadAllText($note) | Should -Be 'cloudbase True'
            & $read 'secret/token' | Should -Be 'abc'
            [System.IO.File]::Exists($kept) | Should -Be $true
            # It holds secrets, and cloudbase-init may be killed before it removes it.
            [System.IO.File]::ReadAllText($script) | Should -Be ''
            [System.IO.File]::ReadAllText($LogFile) | Should -Match 'unpacked 3 of 3 files'
            Should -Invoke Protect-Directory -Times 1 -Exactly
        }
        It 'leaves nothing of another payload' {
            $script = & $deliver (& $pack $files)
            & $script -Source task -Root $Root
            $files.Remove('secret/token')
            $files['node.json'] = '{"a": 1}'
            $script = & $deliver (& $pack $files)
            & $script -Source task -Root $Root
            [System.IO.File]::Exists([System.IO.Path]::Combine($Payload, 'secret', 'token')) | Should -Be $false
            & $read 'node.json' | Should -Be '{"a": 1}'
            [System.IO.File]::ReadAllText($script) | Should -Not -Be ''
        }
        It 'does not bring back the secrets of a finished plan' {
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($Root, 'state', 'finished'), (Get-TextDigest '{}'))
            [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::Combine($Payload, 'runner'))
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($Payload, 'runner', 'run.ps1'), $usual)
            $script = & $deliver (& $pack $files)
            & $script -Source cloudbase -Root $Root
            $LASTEXITCODE | Should -Be 0
            [System.IO.File]::Exists($note) | Should -Be $true
            [System.IO.File]::Exists($kept) | Should -Be $false
            [System.IO.Directory]::Exists([System.IO.Path]::Combine($Payload, 'secret')) | Should -Be $false
        }
        It 'is damaged: <why>' -TestCases @(
            @{ why = 'not gzip'; bytes = { , [byte[]] @(1, 2, 3) } }
            @{ why = 'zeros'; bytes = { , (New-Object byte[] 64) } }
            @{ why = 'no plan'; bytes = { , (& $pack @{ 'a' = 'b' }) } }
            @{ why = 'cut'; bytes = { $all = & $pack $files; , $all[0..($all.Length - 30)] } }
            @{ why = 'another digest'; bytes = {
                $plain = [System.Text.Encoding]::ASCII.GetBytes("$('0' * 64) 2 node.json`n{}")
                $memory = New-Object System.IO.MemoryStream
                $gzip = New-Object System.IO.Compression.GZipStream($memory, [System.IO.Compression.CompressionMode]::Compress)
                $gzip.Write($plain, 0, $plain.Length)
                $gzip.Dispose()
                , $memory.ToArray()
            } }
        ) {
            $script = & $deliver (& $bytes)
            & $script -Source task -Root $Root
            $LASTEXITCODE | Should -Be 1002
            $said.Count | Should -Be 1
            $said[0] | Should -Match '^capw1 1 0 plan failed 11 [0-9a-f]{8} user-data\.ps1:\d+ .'
            [System.IO.File]::ReadAllText($ReportFile).Trim() | Should -Be $said[0]
            [System.IO.File]::ReadAllText($LogFile) | Should -Match 'plan failed 11'
        }
    }

    Context 'a loader on a drive' {
        BeforeEach {
            $drives = @('other', 'drive') | ForEach-Object { [System.IO.Path]::Combine([string] $TestDrive, $_) }
            foreach ($drive in $drives) {
                if ([System.IO.Directory]::Exists($drive)) { [System.IO.Directory]::Delete($drive, $true) }
                [void] [System.IO.Directory]::CreateDirectory($drive)
            }
            Mock Get-DriveRoot { return $drives }
            $packed = & $pack $files
            $script = & $deliverOnDrive $packed
        }
        It 'takes the archive that belongs to it, and keeps it' {
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($drives[0], 'payload.gz'), 'of another machine')
            [System.IO.File]::WriteAllBytes([System.IO.Path]::Combine($drives[1], 'payload.gz'), $packed)
            & $script -Source cloudbase -Root $Root
            $LASTEXITCODE | Should -Be 0
            & $read 'secret/token' | Should -Be 'abc'
            # The drive may be gone at the next start.
            [System.IO.Directory]::Delete($drives[1], $true)
            [System.IO.File]::Delete($note)
            & $script -Source cloudbase -Root $Root
            $LASTEXITCODE | Should -Be 0
            [System.IO.File]::ReadAllText($note) | Should -Be 'cloudbase True'
        }
        It 'says that the drive has none' {
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($drives[0], 'payload.gz'), 'of another machine')
            & $script -Source cloudbase -Root $Root
            $LASTEXITCODE | Should -Be 1002
            $said[0] | Should -Match ' plan failed 11 [0-9a-f]{8} user-data\.ps1:\d+ expected payload\.gz with digest [0-9a-f]{64} beside'
        }
        It 'is a text without secrets' {
            $text = [System.IO.File]::ReadAllText($script)
            $text | Should -Not -Match 'H4sI'
            $text.Length | Should -BeLessThan 25000
        }
    }

    Context 'drives' {
        It 'are those that are ready' {
            @(Get-DriveRoot | Where-Object { [System.IO.Directory]::Exists($_) }).Count | Should -BeGreaterThan 0
        }
    }

    Context 'a start from the disk' {
        BeforeEach {
            $files['files/empty'] = 'not empty'
            [System.IO.File]::WriteAllBytes($kept, (& $pack $files))
            & $loader -Source task -Root $Root
        }
        It 'unpacks what is damaged or missing, and nothing else' {
            $LASTEXITCODE | Should -Be 0
            [System.IO.File]::ReadAllText($LogFile) | Should -Match 'unpacked 4 of 4 files'
            $node = [System.IO.Path]::Combine($Payload, 'node.json')
            [System.IO.File]::SetLastWriteTimeUtc($node, (New-Object System.DateTime(2020, 1, 1)))
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($Payload, 'runner', 'run.ps1'), "`0" * 200)
            [System.IO.File]::Delete([System.IO.Path]::Combine($Payload, 'secret', 'token'))
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($Payload, 'files', 'empty'), '')
            [System.IO.File]::Delete($note)
            & $loader -Source task -Root $Root
            $LASTEXITCODE | Should -Be 0
            [System.IO.File]::ReadAllText($note) | Should -Be 'task True'
            & $read 'secret/token' | Should -Be 'abc'
            [System.IO.File]::GetLastWriteTimeUtc($node).Year | Should -Be 2020
            [System.IO.File]::ReadAllText($LogFile) | Should -Match 'unpacked 3 of 4 files'
            $said.Count | Should -Be 0
        }
        It 'runs what is there when the plan has removed the archive' {
            foreach ($file in @($kept, $note)) { [System.IO.File]::Delete($file) }
            & $loader -Source task -Root $Root
            $LASTEXITCODE | Should -Be 0
            [System.IO.File]::Exists($note) | Should -Be $true
        }
        It 'says that its archive is damaged' {
            [System.IO.File]::WriteAllText($kept, "`0" * 100)
            & $loader -Source task -Root $Root
            $LASTEXITCODE | Should -Be 1002
            $said[0] | Should -Match ' plan failed 11 [0-9a-f]{8} loader\.ps1:\d+ .*payload\.gz is damaged, and no drive has the payload of this plan'
        }
        It 'takes a damaged archive again from the drive that has its plan: <damage>' -TestCases @(
            @{ damage = "`0`0`0`0`0`0`0`0" }
            @{ damage = '' }
            @{ damage = 'cut' }
        ) {
            $drive = [System.IO.Path]::Combine([string] $TestDrive, 'delivered')
            $other = [System.IO.Path]::Combine([string] $TestDrive, 'of another machine')
            foreach ($directory in @($other, $drive)) { [void] [System.IO.Directory]::CreateDirectory($directory) }
            Mock Get-DriveRoot { return @($other, $drive) }
            $packed = & $pack $files
            [System.IO.File]::WriteAllBytes([System.IO.Path]::Combine($drive, 'payload.gz'), $packed)
            [System.IO.File]::WriteAllBytes([System.IO.Path]::Combine($other, 'payload.gz'), (& $pack @{ 'node.json' = '{"other": 1}' }))
            if ($damage -eq 'cut') {
                [System.IO.File]::WriteAllBytes($kept, $packed[0..($packed.Length - 40)])
            } else {
                [System.IO.File]::WriteAllText($kept, $damage)
            }
            [System.IO.File]::Delete([System.IO.Path]::Combine($Payload, 'secret', 'token'))
            [System.IO.File]::Delete($note)
            & $loader -Source task -Root $Root
            $LASTEXITCODE | Should -Be 0
            $said.Count | Should -Be 0
            & $read 'secret/token' | Should -Be 'abc'
            Get-Sha256 ([System.IO.File]::ReadAllBytes($kept)) | Should -Be (Get-Sha256 $packed)
            [System.IO.File]::ReadAllText($LogFile) | Should -Match 'payload\.gz is damaged: '
        }
    }

    Context 'a runner' {
        It 'that fails is told: <why>' -TestCases @(
            @{ why = 'it throws'; text = "`nthrow 'no luck'`n"; message = 'run\.ps1:2 no luck' }
            @{ why = 'it is not PowerShell'; text = "`n`n`"a `$found: b`"`n"; message = 'run\.ps1:3 .+' }
            @{ why = 'it ends early'; text = "'x'`n"; message = 'loader\.ps1:\d+ the runner ended with -1 before it reported' }
            @{ why = 'it ends with another code'; text = "exit 7`n"; message = 'loader\.ps1:\d+ the runner ended with 7 before it reported' }
            @{ why = 'a command is unknown'; text = "Get-Nothing`n"; message = 'run\.ps1:1 .*Get-Nothing.*' }
        ) {
            $files['runner/run.ps1'] = "param(`$Source, [switch] `$Locked)$text"
            [System.IO.File]::WriteAllBytes($kept, (& $pack $files))
            $null = & $loader -Source task -Root $Root
            $LASTEXITCODE | Should -Be 1002
            $said.Count | Should -Be 1
            $said[0] | Should -Match "^capw1 1 0 plan failed 11 [0-9a-f]{8} $message"
        }
        It 'that cannot read its own report.ps1 is told by the loader' {
            $files['runner/run.ps1'] = [System.IO.File]::ReadAllText("$PSScriptRoot/run.ps1")
            $files['runner/report.ps1'] = 'function Send-Report {'
            [System.IO.File]::WriteAllBytes($kept, (& $pack $files))
            & $loader -Source task -Root $Root
            $LASTEXITCODE | Should -Be 1002
            [string]::Join('|', $said.ToArray()) | Should -Match '^capw1 1 0 plan failed 11 [0-9a-f]{8} report\.ps1:1 '
        }
        It 'ends with <code>' -TestCases @(@{ code = 1002 }, @{ code = 1003 }) {
            $files['runner/run.ps1'] = "param(`$Source, [switch] `$Locked)`nexit $code`n"
            [System.IO.File]::WriteAllBytes($kept, (& $pack $files))
            & $loader -Source task -Root $Root
            $LASTEXITCODE | Should -Be $code
            $said.Count | Should -Be 0
        }
        It 'is not started while another one runs' {
            [System.IO.File]::WriteAllBytes($kept, (& $pack $files))
            Mock Enter-Lock
            & $loader -Source task -Root $Root
            $LASTEXITCODE | Should -Be 1002
            [System.IO.File]::Exists($note) | Should -Be $false
            $said.Count | Should -Be 0
            [System.IO.File]::ReadAllText($LogFile) | Should -Match 'another runner'
        }
        It 'ends with a number even when nothing can be said' {
            Mock Send-Failure { throw 'no' }
            [System.IO.File]::WriteAllBytes($kept, (New-Object byte[] 9))
            & $loader -Source task -Root $Root
            $LASTEXITCODE | Should -Be 1002
        }
    }
}
