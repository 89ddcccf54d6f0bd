# The kinds of items that bring programs: download, archive.

# The digest of a file, by the algorithm of the digest that is expected.
function Get-DigestLike([string] $Path, [string] $Digest) {
    $algorithm = $Digest.Substring(0, $Digest.IndexOf(':'))
    return "${algorithm}:$((Get-FileHash -LiteralPath $Path -Algorithm $algorithm.ToUpperInvariant()).Hash.ToLowerInvariant())"
}

# The proxy that the plan names for a download, or $null: what is reached without it was decided when the plan was made. User and password
# go to methods of .NET only: where module logging is on, Windows keeps what cmdlets are given in its event log.
function Get-DownloadProxy($Item) {
    $proxy = Get-Field $Item 'proxy' $null
    if ($null -eq $proxy) { return $null }
    $address = Get-Field $proxy 'plain' $null
    if ($null -eq $address) { $address = [System.IO.File]::ReadAllText((Get-PayloadPath $proxy.secret.source)) }
    $server = [System.Uri]::new($address)
    $found = [System.Net.WebProxy]::new($server)
    if ($server.UserInfo -ne '') {
        $user, $password = $server.UserInfo.Split(':', 2)
        $found.Credentials = [System.Net.NetworkCredential]::new([System.Uri]::UnescapeDataString($user), [System.Uri]::UnescapeDataString([string] $password))
    }
    return $found
}

# Certificates are checked against those that Windows trusts.
function Receive-File([string] $Url, [string] $Path, [int] $Seconds, $Proxy) {
    $waited = [System.Diagnostics.Stopwatch]::StartNew()
    [System.Net.ServicePointManager]::SecurityProtocol = [System.Net.ServicePointManager]::SecurityProtocol -bor [System.Net.SecurityProtocolType]::Tls12
    $request = [System.Net.WebRequest]::Create($Url)
    $request.Timeout = 60000
    $request.ReadWriteTimeout = 60000
    $request.Proxy = $Proxy
    $response = $request.GetResponse()
    try {
        $from = $response.GetResponseStream()
        $to = New-Object System.IO.FileStream($Path, [System.IO.FileMode]::Create, [System.IO.FileAccess]::Write, [System.IO.FileShare]::None)
        try {
            $buffer = [byte[]]::new(1048576)
            while (($count = $from.Read($buffer, 0, $buffer.Length)) -gt 0) {
                $to.Write($buffer, 0, $count)
                if ($waited.Elapsed.TotalSeconds -gt $Seconds) { throw "$Url did not arrive within $Seconds seconds" }
            }
            $to.Flush($true)
        } finally { $to.Dispose() }
    } finally { $response.Dispose() }
}

# A program that runs cannot be replaced or deleted, but it can get another name.
function Move-Aside([string] $Path) {
    if (-not [System.IO.File]::Exists($Path)) { return }
    foreach ($number in @('', 2, 3, 4, 5)) {
        try {
            [System.IO.File]::Delete("$Path.old$number")
            [System.IO.File]::Move($Path, "$Path.old$number")
            return
        } catch {
            if ($number -eq 5) { throw }
        }
    }
}

# What was moved aside goes when its successor is there. A program that still runs cannot be deleted and stays.
function Remove-Aside([string] $Path) {
    foreach ($number in @('', 2, 3, 4, 5)) {
        try { [System.IO.File]::Delete("$Path.old$number") } catch { Write-Log "$Path.old$number stays: $($_.Exception.Message)" }
    }
}

# What a program has written goes to the disk before it counts: after a power cut it would be zeros.
function Sync-Directory([string] $Path) {
    foreach ($file in [System.IO.Directory]::GetFiles($Path, '*', [System.IO.SearchOption]::AllDirectories)) {
        try {
            $stream = New-Object System.IO.FileStream($file, [System.IO.FileMode]::Open, [System.IO.FileAccess]::ReadWrite, [System.IO.FileShare]::ReadWrite)
            try { $stream.Flush($true) } finally { $stream.Dispose() }
        } catch {
            # A program that runs has been there before.
            Write-Log "$file is not flushed: $($_.Exception.Message)"
        }
    }
}

# --- download: url, path, digest, proxy {plain | secret {source, sha256}}
function Test-DownloadItem($Item) {
    return [System.IO.File]::Exists($Item.path) -and (Get-DigestLike $Item.path $Item.digest) -ceq $Item.digest
}

function Set-DownloadItem($Item) {
    [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($Item.path))
    $temporary = "$($Item.path).new"
    Receive-File $Item.url $temporary $Item.seconds (Get-DownloadProxy $Item)
    $found = Get-DigestLike $temporary $Item.digest
    if ($found -cne $Item.digest) {
        [System.IO.File]::Delete($temporary)
        throw (New-Object System.IO.InvalidDataException("expected $($Item.url) with digest $($Item.digest), found ${found}: correct the one or the other"))
    }
    Move-Aside $Item.path
    [System.IO.File]::Move($temporary, $Item.path)
    Remove-Aside $Item.path
}

# --- archive: path, digest, directory, strip, files. What was unpacked is noted, because its files may be changed afterwards.
function Test-ArchiveItem($Item) {
    foreach ($file in @($Item.files)) {
        if (-not [System.IO.File]::Exists([System.IO.Path]::Combine($Item.directory, $file))) { return $false }
    }
    $note = [System.IO.Path]::Combine($StateDirectory, "unpacked-$($Item.id)")
    return [System.IO.File]::Exists($note) -and (Read-Text $note) -ceq $Item.digest
}

function Set-ArchiveItem($Item) {
    # It may have been changed since the download.
    $found = Get-DigestLike $Item.path $Item.digest
    if ($found -cne $Item.digest) { throw "expected $($Item.path) with digest $($Item.digest), found $found" }
    foreach ($file in @($Item.files)) { Move-Aside ([System.IO.Path]::Combine($Item.directory, $file)) }
    [void] [System.IO.Directory]::CreateDirectory($Item.directory)
    $argv = @("$env:SystemRoot\System32\tar.exe", '-x', '-f', $Item.path, '-C', $Item.directory, '--strip-components', [string] $Item.strip)
    Invoke-Program $argv $env:SystemRoot $Item.seconds
    foreach ($file in @($Item.files)) {
        if (-not [System.IO.File]::Exists([System.IO.Path]::Combine($Item.directory, $file))) {
            throw (New-Object System.IO.InvalidDataException("expected $file in $($Item.path), found none: it is another archive"))
        }
    }
    Sync-Directory $Item.directory
    # Before it is noted: a machine that loses its power here unpacks again, and leaves nothing of the first time.
    foreach ($file in @($Item.files)) { Remove-Aside ([System.IO.Path]::Combine($Item.directory, $file)) }
    Write-WholeText ([System.IO.Path]::Combine($StateDirectory, "unpacked-$($Item.id)")) $Item.digest
}
