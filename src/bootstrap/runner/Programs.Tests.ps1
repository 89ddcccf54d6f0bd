# Tests of programs.ps1: see TestSetup.ps1 for what they need.
Describe 'programs.ps1' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        $bin = [System.IO.Path]::Combine($Root, 'bin')
        $abc = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
    }

    Context 'a digest' {
        It 'is made as the one that is expected' {
            $file = [System.IO.Path]::Combine($Root, 'abc')
            [System.IO.File]::WriteAllText($file, 'abc')
            Get-DigestLike $file 'sha256:00' | Should -Be "sha256:$abc"
            Get-DigestLike $file 'sha512:00' | Should -Match '^sha512:ddaf35a193617aba'
        }
    }

    Context 'the proxy of a download' {
        It 'is the one that the plan names, or none' {
            Get-DownloadProxy (ConvertFrom-Json -InputObject '{"url": "https://a.example.com/a.exe"}') | Should -Be $null
            $item = ConvertFrom-Json -InputObject '{"proxy": {"plain": "http://proxy.example.com:3128"}}'
            (Get-DownloadProxy $item).Address.Host | Should -Be 'proxy.example.com'
            (Get-DownloadProxy $item).Credentials | Should -Be $null
        }
        It 'may be a secret with user and password' {
            [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::Combine($Payload, 'secret'))
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($Payload, 'secret', 'download-proxy'), 'http://me:p%40ss@proxy.example.com:3128')
            $item = ConvertFrom-Json -InputObject '{"proxy": {"secret": {"source": "secret/download-proxy", "sha256": "00"}}}'
            (Get-DownloadProxy $item).Credentials.UserName | Should -Be 'me'
            (Get-DownloadProxy $item).Credentials.Password | Should -Be 'p@ss'
            # What finds a leak.
            Get-Leak { [System.IO.File]::ReadAllText((Get-PayloadPath 'secret/download-proxy')) | Where-Object { $_ } } 'p%40ss' | Should -Be 'Where-Object'
            Get-Leak { Get-DownloadProxy $item } 'p%40ss' | Should -Be ''
            Get-Leak { Get-DownloadProxy $item } 'p@ss' | Should -Be ''
        }
    }

    Context 'a file from a server' {
        BeforeAll {
            # Answers one request with that text, byte by byte if it is slow.
            $serve = {
                param($text, $pause)
                $socket = New-Object System.Net.Sockets.TcpListener([System.Net.IPAddress]::Loopback, 0)
                $socket.Start()
                $server = [powershell]::Create().AddScript({
                    param($socket, $text, $pause)
                    $client = $socket.AcceptTcpClient()
                    $stream = $client.GetStream()
                    $null = $stream.Read((New-Object byte[] 4096), 0, 4096)
                    $head = [System.Text.Encoding]::ASCII.GetBytes("HTTP/1.1 200 OK`r`nContent-Length: $($text.Length)`r`nConnection: close`r`n`r`n")
                    $stream.Write($head, 0, $head.Length)
                    foreach ($byte in [System.Text.Encoding]::ASCII.GetBytes($text)) {
                        try { $stream.WriteByte($byte) } catch { break }
                        Start-Sleep -Milliseconds $pause
                    }
                    $client.Dispose()
                    $socket.Stop()
                }).AddArgument($socket).AddArgument($text).AddArgument($pause)
                $null = $server.BeginInvoke()
                return "http://127.0.0.1:$($socket.LocalEndpoint.Port)/a"
            }
            $to = [System.IO.Path]::Combine($Root, 'received')
        }
        It 'arrives' {
            Receive-File (& $serve 'abc' 0) $to 60 $null
            [System.IO.File]::ReadAllText($to) | Should -Be 'abc'
        }
        It 'goes through the caches to the disk' {
            $url = & $serve 'abc' 0
            $calls = New-Object System.Collections.ArrayList
            $stream = New-NotedStream $calls
            Mock New-Object { $stream } -ParameterFilter { $TypeName -eq 'System.IO.FileStream' }
            Receive-File $url $to 60 $null
            # It may arrive in several parts.
            [string]::Join('|', $calls.ToArray()) | Should -Match '^(Write \d\|)+Flush True\|Dispose $'
        }
        It 'has its time' {
            { Receive-File (& $serve ('x' * 100) 100) $to -1 $null } | Should -Throw '*did not arrive within -1 seconds*'
        }
    }

    Context 'a download' {
        BeforeEach {
            Mock Receive-File { [System.IO.File]::WriteAllText($Path, 'abc') }
        }
        It 'is kept with the digest that was asked for' {
            $path = [System.IO.Path]::Combine($bin, 'a.exe')
            $item = New-Object PSObject -Property @{ url = 'https://a.example.com/a.exe'; path = $path; digest = "sha256:$abc"; seconds = 5 }
            Test-DownloadItem $item | Should -Be $false
            Set-DownloadItem $item
            Test-DownloadItem $item | Should -Be $true
            # What is there already gets another name: it may run. If it does not, it goes.
            Set-DownloadItem $item
            Test-DownloadItem $item | Should -Be $true
            [System.IO.File]::Exists("$path.old") | Should -Be $false
            [void] [System.IO.Directory]::CreateDirectory("$path.old")
            Set-DownloadItem $item
            Test-DownloadItem $item | Should -Be $true
            [System.IO.Directory]::Exists("$path.old") | Should -Be $true
        }
        It 'takes the place of programs that run, one after the other' {
            $path = [System.IO.Path]::Combine($bin, 'c.exe')
            [System.IO.File]::WriteAllText($path, 'second')
            # What runs cannot be deleted, as here a directory cannot.
            [void] [System.IO.Directory]::CreateDirectory("$path.old")
            Move-Aside $path
            [System.IO.File]::ReadAllText("$path.old2") | Should -Be 'second'
            Move-Aside $path
            foreach ($number in @(2, 3, 4, 5)) {
                [System.IO.File]::Delete("$path.old$number")
                [void] [System.IO.Directory]::CreateDirectory("$path.old$number")
            }
            [System.IO.File]::WriteAllText($path, 'third')
            { Move-Aside $path } | Should -Throw
        }
        It 'is thrown away with another one, and not tried again' {
            $path = [System.IO.Path]::Combine($bin, 'b.exe')
            $item = New-Object PSObject -Property @{ url = 'https://a.example.com/b.exe'; path = $path; digest = 'sha256:00'; seconds = 5 }
            $message = "expected https://a.example.com/b.exe with digest sha256:00, found sha256:${abc}: correct the one or the other"
            { Set-DownloadItem $item } | Should -Throw -ExpectedMessage $message -ExceptionType ([System.IO.InvalidDataException])
            [System.IO.File]::Exists($path) | Should -Be $false
            [System.IO.File]::Exists("$path.new") | Should -Be $false
        }
    }

    Context 'what a program has written' {
        It 'goes to the disk, but for what runs' {
            [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::Combine($bin, 'below'))
            $runs = [System.IO.Path]::Combine($bin, 'below', 'runs.exe')
            [System.IO.File]::WriteAllText($runs, 'x')
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($bin, 'new.exe'), 'x')
            $held = [System.IO.File]::Open($runs, 'Open', 'Read', 'None')
            try { Sync-Directory $bin } finally { $held.Dispose() }
            [System.IO.File]::ReadAllText($LogFile) | Should -Match 'runs\.exe is not flushed'
            [System.IO.File]::ReadAllText($LogFile) | Should -Not -Match 'new\.exe is not flushed'
        }
        It 'goes through the caches to the disk, also from directories below' {
            $written = [System.IO.Path]::Combine($Root, 'written')
            [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::Combine($written, 'below'))
            foreach ($name in @('a.exe', 'below/b.exe')) { [System.IO.File]::WriteAllText([System.IO.Path]::Combine($written, $name), 'x') }
            $calls = New-Object System.Collections.ArrayList
            $stream = New-NotedStream $calls
            Mock New-Object { $stream } -ParameterFilter { $TypeName -eq 'System.IO.FileStream' }
            Sync-Directory $written
            [string]::Join('|', $calls.ToArray()) | Should -Be 'Flush True|Dispose |Flush True|Dispose '
        }
    }

    Context 'an archive' {
        BeforeEach {
            $path = [System.IO.Path]::Combine($Root, 'a.tar.gz')
            [System.IO.File]::WriteAllText($path, 'abc')
            $item = New-Object PSObject -Property @{
                id = 'programs'; path = $path; digest = "sha256:$abc"; directory = $bin; strip = 1; files = @('one.exe'); seconds = 5
            }
            Mock Invoke-Program { [System.IO.File]::WriteAllText([System.IO.Path]::Combine($bin, 'one.exe'), 'new') }
        }
        It 'is unpacked once' {
            [void] [System.IO.Directory]::CreateDirectory($bin)
            $one = [System.IO.Path]::Combine($bin, 'one.exe')
            [System.IO.File]::WriteAllText($one, 'old')
            $flushed = New-Object System.Collections.ArrayList
            Mock Sync-Directory { [void] $flushed.Add("$Path $([System.IO.File]::ReadAllText($one)) $(Test-ArchiveItem $item)") }
            Test-ArchiveItem $item | Should -Be $false
            Set-ArchiveItem $item
            Test-ArchiveItem $item | Should -Be $true
            # After the program has written, and before that is noted.
            [string]::Join('|', $flushed.ToArray()) | Should -Be "$bin new False"
            [System.IO.File]::ReadAllText([System.IO.Path]::Combine($bin, 'one.exe')) | Should -Be 'new'
            [System.IO.Directory]::GetFiles($bin, 'one.exe.old*').Count | Should -Be 0
            Should -Invoke Invoke-Program -Times 1 -Exactly -ParameterFilter { "$($Argv[1..7])" -eq "-x -f $path -C $bin --strip-components 1" }
            [System.IO.File]::Delete([System.IO.Path]::Combine($bin, 'one.exe'))
            Test-ArchiveItem $item | Should -Be $false
        }
        It 'must not have changed since the download' {
            [System.IO.File]::WriteAllText($path, 'abd')
            { Set-ArchiveItem $item } | Should -Throw '*with digest*, found*'
            Should -Invoke Invoke-Program -Times 0 -Exactly
        }
        It 'must bring what was promised' {
            $item.files = @('one.exe', 'two.exe')
            { Set-ArchiveItem $item } | Should -Throw -ExceptionType ([System.IO.InvalidDataException])
        }
    }
}
