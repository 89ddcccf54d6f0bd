# What is remembered from one start to the next: state and markers.

$StateDirectory = [System.IO.Path]::GetDirectoryName($StateFile)
$MarkerDirectory = [System.IO.Path]::Combine($StateDirectory, 'items')
# Not the clock of Windows: it may be corrected by hours while the plan is carried out.
$Watch = [System.Diagnostics.Stopwatch]::StartNew()
$Fresh = $State.Clone()

function Get-TextDigest([string] $Text) {
    return Get-Sha256 ([System.Text.Encoding]::UTF8.GetBytes($Text))
}

function Get-ItemDigest($Item) {
    return Get-TextDigest (ConvertTo-Json -InputObject $Item -Depth 12 -Compress)
}

# A text that is another one after each start of Windows: it is in a key that no start of Windows brings back. Not the time of the start,
# which moves with the clock, and not the number that Windows counts, which is written late.
function Get-BootId {
    $rights = [Microsoft.Win32.RegistryKeyPermissionCheck]::ReadWriteSubTree
    $key = [Microsoft.Win32.Registry]::LocalMachine.CreateSubKey('SOFTWARE\capw-boot', $rights, [Microsoft.Win32.RegistryOptions]::Volatile)
    try {
        if ($null -eq $key.GetValue('Id')) { $key.SetValue('Id', [System.Guid]::NewGuid().ToString()) }
        return [string] $key.GetValue('Id')
    } finally { $key.Dispose() }
}

# The object in a file. $null if there is none with these properties: a power cut may leave a file of zeros.
function Read-Object([string] $Path, [string[]] $Properties) {
    if (-not [System.IO.File]::Exists($Path)) { return $null }
    try {
        $object = ConvertFrom-Json -InputObject (Read-Text $Path)
        foreach ($name in $Properties) {
            if ($null -eq $object -or $null -eq $object.PSObject.Properties[$name]) { throw "expected $name in it, found none" }
        }
        return $object
    } catch {
        Write-Log "$Path cannot be used: $($_.Exception.Message)"
        return $null
    }
}

# Of the two copies the newer one that can be read.
function Read-State {
    $newest = $null
    foreach ($path in @($StateFile, "$StateFile.old")) {
        $known = Read-Object $path @($State.Keys)
        if ($null -ne $known -and ($null -eq $newest -or [int64] $known.sequence -gt [int64] $newest.sequence)) { $newest = $known }
    }
    return $newest
}

# Reads what is remembered of this plan; another plan starts anew, the sequence of its reports goes on.
function Open-State([string] $Digest) {
    [void] [System.IO.Directory]::CreateDirectory($MarkerDirectory)
    $known = Read-State
    $Journal.anew = $null -eq $known
    $State.sequence = Get-LastSequence
    $State.boot = Get-BootId
    $State.boots = 1
    if ($null -ne $known) {
        $State.boots = [int] $known.boots
        if ($known.boot -cne $State.boot) { $State.boots++ }
    }
    foreach ($name in @('used', 'reboots', 'outcome', 'theirs', 'cleaning')) { $State[$name] = $Fresh[$name] }
    if ($null -ne $known -and $known.digest -ceq $Digest) {
        foreach ($name in @('used', 'reboots', 'theirs', 'cleaning')) { $State[$name] = $known.$name }
        if ($known.boot -ceq $State.boot) { $State.outcome = $known.outcome }
    }
    $Journal.before = [int64] $State.used
    $Watch.Restart()
    $State.digest = $Digest
    $Journal.open = $true
    Save-State
}

function Save-State {
    $State.used = $Journal.before + [int64] $Watch.Elapsed.TotalSeconds
    Write-WholeText $StateFile (ConvertTo-Json -InputObject $State -Compress) "$StateFile.old"
}

# The plan is carried out: later starts leave it alone.
function Save-Finished {
    Write-WholeText ([System.IO.Path]::Combine($StateDirectory, 'finished')) $State.digest
}

# What is known of an item: digest of its definition, '' from the moment it is begun until it is done; processes, by the names of the
# services that must be started after a change of the item, as they were when it was last changed.
function Get-Marker([string] $Id) {
    return Read-Object ([System.IO.Path]::Combine($MarkerDirectory, "$Id.json")) @('digest', 'processes')
}

function Set-Marker([string] $Id, [string] $Digest, $Processes) {
    $marker = New-Object PSObject -Property @{ digest = $Digest; processes = $Processes }
    Write-WholeText ([System.IO.Path]::Combine($MarkerDirectory, "$Id.json")) (ConvertTo-Json -InputObject $marker -Compress)
}
