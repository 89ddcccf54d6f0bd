# Our own files: written so that they survive, for administrators only, changed by one runner at a time. The loader carries a copy of
# this file.

# Is the plan with that digest carried out? Then its secrets are gone and must not come back.
function Test-Finished([string] $Digest) {
    $path = [System.IO.Path]::Combine($Root, 'state', 'finished')
    return [System.IO.File]::Exists($path) -and (Read-Text $path) -ceq $Digest
}

function Get-Sha256([byte[]] $Bytes) {
    $algorithm = [System.Security.Cryptography.SHA256]::Create()
    return [System.BitConverter]::ToString($algorithm.ComputeHash($Bytes)).Replace('-', '').ToLowerInvariant()
}

# The roots of the drives that can be read.
function Get-DriveRoot {
    return @([System.IO.DriveInfo]::GetDrives() | Where-Object { $_.IsReady } | ForEach-Object { $_.Name })
}

# Through the caches to the disk: what is only in memory would be zeros after a power cut.
function Write-Through([string] $Path, [byte[]] $Bytes) {
    $options = [System.IO.FileOptions]::WriteThrough
    $stream = New-Object System.IO.FileStream($Path, [System.IO.FileMode]::Create, [System.IO.FileAccess]::Write, [System.IO.FileShare]::None, 4096, $options)
    try {
        $stream.Write($Bytes, 0, $Bytes.Length)
        $stream.Flush($true)
    } finally { $stream.Dispose() }
}

# Writes a file so that a kill or a power cut leaves the old or the new one. Backup: where the old one is kept.
function Write-Whole([string] $Path, [byte[]] $Bytes, $Backup = [NullString]::Value) {
    $temporary = "$Path.new"
    for ($attempt = 1; $true; $attempt++) {
        try {
            Write-Through $temporary $Bytes
            break
        } catch {
            # A scanner may hold what an earlier one has left.
            if ($attempt -ge 10) { throw }
            Start-Sleep -Milliseconds 200
        }
    }
    Move-Over $temporary $Path $Backup
}

function Write-WholeText([string] $Path, [string] $Text, $Backup = [NullString]::Value) {
    Write-Whole $Path ([System.Text.Encoding]::UTF8.GetBytes($Text)) $Backup
}

# A scanner may hold the one or the other file for a moment.
function Move-Over([string] $From, [string] $To, $Backup = [NullString]::Value) {
    for ($attempt = 1; $true; $attempt++) {
        try {
            if ([System.IO.File]::Exists($To)) {
                [System.IO.File]::Replace($From, $To, $Backup)
            } else {
                [System.IO.File]::Move($From, $To)
            }
            return
        } catch {
            if ($attempt -ge 10) { throw }
            Start-Sleep -Milliseconds 200
        }
    }
}

# Reads the access of a file or directory, or gives it the access of a descriptor. PowerShell 7 does not have these four methods: its
# tests replace this function.
function Invoke-AccessControl([string] $Path, [bool] $Directory, $Security) {
    $section = [System.Security.AccessControl.AccessControlSections]::Access
    if ($null -eq $Security) {
        if ($Directory) { return [System.IO.Directory]::GetAccessControl($Path, $section) }
        return [System.IO.File]::GetAccessControl($Path, $section)
    }
    if ($Directory) {
        [System.IO.Directory]::SetAccessControl($Path, $security)
    } else {
        [System.IO.File]::SetAccessControl($Path, $security)
    }
}

# The directory and what is made in it are for SYSTEM and administrators only.
function Protect-Directory([string] $Path) {
    $security = New-Object System.Security.AccessControl.DirectorySecurity
    $security.SetSecurityDescriptorSddlForm('D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)', [System.Security.AccessControl.AccessControlSections]::Access)
    Invoke-AccessControl $Path $true $security
}

# cloudbase-init, the boot task and the first-boot task may each start a runner. The second one waits for the first one; $null: in vain.
# A file, which the owner's end releases, and not a mutex: a mutex of SYSTEM cannot be opened by the account of cloudbase-init.
function Enter-Lock([int] $Seconds) {
    $path = [System.IO.Path]::Combine($Root, 'runner.lock')
    for ($waited = 0; $true; $waited++) {
        try {
            return [System.IO.File]::Open($path, 'OpenOrCreate', 'ReadWrite', 'None')
        } catch {
            # Sharing violation and lock violation of Windows, EAGAIN of Linux.
            if (@(32, 33, 11) -notcontains ($_.Exception.GetBaseException().HResult -band 0xffff)) { throw }
        }
        if ($waited -ge $Seconds) { return $null }
        Start-Sleep -Seconds 1
    }
}
