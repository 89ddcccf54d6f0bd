# Tests of files.ps1: see TestSetup.ps1 for what they need.
Describe 'files.ps1' {
    BeforeAll {
        . "$PSScriptRoot/TestSetup.ps1"
        $path = [System.IO.Path]::Combine($Root, 'a.txt')
    }

    It 'knows a digest' {
        Get-Sha256 ([System.Text.Encoding]::ASCII.GetBytes('abc')) | Should -Be 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
        Get-Sha256 ([byte[]] @()) | Should -Be 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'
    }

    Context 'a file' {
        BeforeEach {
            foreach ($file in @($path, "$path.new", "$path.old")) { [System.IO.File]::Delete($file) }
            Mock Start-Sleep
        }
        It 'is written as a whole, and its last copy is kept' {
            Mock Write-Through { [System.IO.File]::WriteAllBytes($Path, $Bytes) }
            Write-WholeText $path 'one' "$path.old"
            [System.IO.File]::Exists("$path.old") | Should -Be $false
            Write-WholeText $path 'two' "$path.old"
            [System.IO.File]::ReadAllText($path) | Should -Be 'two'
            [System.IO.File]::ReadAllText("$path.old") | Should -Be 'one'
            [System.IO.File]::Exists("$path.new") | Should -Be $false
            Should -Invoke Write-Through -Times 2 -Exactly -ParameterFilter { $Path -like '*a.txt.new' }
        }
        It 'may be empty' {
            Write-Whole $path ([byte[]] @())
            (New-Object System.IO.FileInfo($path)).Length | Should -Be 0
        }
        It 'is tried again for a while when another program holds it' {
            [System.IO.File]::WriteAllText($path, 'old')
            $tries = New-Object System.Collections.ArrayList
            $missing = [System.IO.Path]::Combine($Root, 'late.txt')
            Mock Start-Sleep {
                [void] $tries.Add(1)
                if ($tries.Count -eq 3) { [System.IO.File]::WriteAllText($missing, 'new') }
            }
            Move-Over $missing $path
            [System.IO.File]::ReadAllText($path) | Should -Be 'new'
            $tries.Count | Should -Be 3
        }
        It 'that another program holds is read and written once it is let go' {
            $late = @{ Stream = $null; Tries = 0 }
            Mock Start-Sleep {
                $late.Tries++
                if ($late.Tries -eq 3) { $late.Stream.Dispose() }
            }
            [System.IO.File]::WriteAllText($path, 'old')
            $late.Stream = [System.IO.File]::Open($path, 'Open', 'ReadWrite', 'None')
            Read-Text $path | Should -Be 'old'
            $late.Tries = 0
            $late.Stream = [System.IO.File]::Open("$path.new", 'Create', 'ReadWrite', 'None')
            Write-WholeText $path 'new'
            [System.IO.File]::ReadAllText($path) | Should -Be 'new'
            $late.Tries | Should -Be 3
        }
        It 'that does not exist is not waited for' {
            { Read-Text "$path.none" } | Should -Throw
            Should -Invoke Start-Sleep -Times 0 -Exactly
        }
        It 'that is held for long cannot be read' {
            [System.IO.File]::WriteAllText($path, 'old')
            $stream = [System.IO.File]::Open($path, 'Open', 'ReadWrite', 'None')
            try { { Read-Text $path } | Should -Throw } finally { $stream.Dispose() }
            Should -Invoke Start-Sleep -Times 9 -Exactly
        }
        It 'goes through the caches to the disk' {
            $calls = New-Object System.Collections.ArrayList
            $stream = New-NotedStream $calls
            Mock New-Object { [void] $calls.Add([string] $ArgumentList[5]); $stream } -ParameterFilter { $TypeName -eq 'System.IO.FileStream' }
            Write-Through $path ([byte[]] @(1, 2))
            [string]::Join('|', $calls.ToArray()) | Should -Be 'WriteThrough|Write 2|Flush True|Dispose '
        }
        It 'fails in the end' {
            { Move-Over "$path.none" $path } | Should -Throw
            Should -Invoke Start-Sleep -Times 9 -Exactly
        }
    }

    Context 'a plan' {
        It 'is finished when its own digest was noted' {
            Test-Finished 'abc' | Should -Be $false
            [System.IO.File]::WriteAllText([System.IO.Path]::Combine($Root, 'state', 'finished'), 'abc')
            Test-Finished 'abc' | Should -Be $true
            Test-Finished 'abd' | Should -Be $false
        }
    }

    Context 'access' {
        It 'of our directory is for administrators' -Skip:($env:OS -ne 'Windows_NT') {
            Mock Invoke-AccessControl
            Protect-Directory $Root
            Should -Invoke Invoke-AccessControl -Times 1 -Exactly -ParameterFilter {
                $Path -eq $Root -and $Directory -and
                $Security.GetSecurityDescriptorSddlForm('Access') -eq 'D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)'
            }
        }
        It 'is read and written by the methods of .NET Framework' -Skip:($PSVersionTable.PSVersion.Major -gt 5) {
            foreach ($directory in @($true, $false)) {
                $target = $Root
                if (-not $directory) {
                    $target = $path
                    [System.IO.File]::WriteAllText($path, '')
                }
                $security = Invoke-AccessControl $target $directory $null
                Invoke-AccessControl $target $directory $security
            }
        }
    }

    Context 'the lock' {
        BeforeEach {
            Mock Start-Sleep
        }
        It 'has one owner' {
            $lock = Enter-Lock 0
            Enter-Lock 2 | Should -Be $null
            Should -Invoke Start-Sleep -Times 2 -Exactly
            $lock.Dispose()
            $lock = Enter-Lock 0
            $lock | Should -Not -Be $null
            $lock.Dispose()
        }
        It 'says what else fails' {
            $Root = [System.IO.Path]::Combine($Root, 'none')
            { Enter-Lock 5 } | Should -Throw
            Should -Invoke Start-Sleep -Times 0 -Exactly
        }
    }
}
