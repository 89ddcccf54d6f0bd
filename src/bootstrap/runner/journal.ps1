# What is remembered from one start to the next: state and markers.

$StateDirectory = [System.IO.Path]::GetDirectoryName($StateFile)
$MarkerDirectory = [System.IO.Path]::Combine($StateDirectory, 'items')

function Get-TextDigest([string] $Text) {
    return Get-Sha256 ([System.Text.Encoding]::UTF8.GetBytes($Text))
}

function Get-ItemDigest($Item) {
    return Get-TextDigest (ConvertTo-Json -InputObject $Item -Depth 12 -Compress)
}

# A number that is another one after each start of Windows. Not the time of the start: that moves with the clock.
function Get-BootId {
    $key = 'HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters'
    if (Test-Path -LiteralPath $key) {
        $number = Get-Field (Get-ItemProperty -LiteralPath $key) 'BootId' $null
        if ($null -ne $number) { return [string] $number }
    }
    # When the first process started, as it was noted then.
    return [string] @(Get-CimInstance -ClassName Win32_Process -Filter "Name='smss.exe'")[0].CreationDate.Ticks
}

# The object in a file. $null if there is none with these properties: a power cut may leave a file of zeros.
function Read-Object([string] $Path, [string[]] $Properties) {
    if (-not [System.IO.File]::Exists($Path)) { return $null }
    try {
        $object = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($Path))
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
    $State.sequence = Get-LastSequence
    $State.boot = Get-BootId
    $State.boots = 1
    if ($null -ne $known) {
        $State.boots = [int] $known.boots
        if ($known.boot -cne $State.boot) { $State.boots++ }
    }
    if ($null -eq $known -or $known.digest -cne $Digest) {
        $State.started = [string] [System.DateTime]::UtcNow.Ticks
        $State.reboots = 0
    } else {
        $State.started = $known.started
        $State.reboots = [int] $known.reboots
    }
    $State.digest = $Digest
    $Journal.open = $true
    Save-State
}

function Save-State {
    Write-WholeText $StateFile (ConvertTo-Json -InputObject $State -Compress) "$StateFile.old"
}

# The plan is carried out: later starts leave it alone.
function Save-Finished {
    Write-WholeText ([System.IO.Path]::Combine($StateDirectory, 'finished')) $State.digest
}

# What is known of an item: digest of its definition, and when it last changed something (UTC ticks, 0: never).
function Get-Marker([string] $Id) {
    return Read-Object ([System.IO.Path]::Combine($MarkerDirectory, "$Id.json")) @('digest', 'acted')
}

function Set-Marker([string] $Id, [string] $Digest, [int64] $Acted) {
    $marker = New-Object PSObject -Property @{ digest = $Digest; acted = [string] $Acted }
    Write-WholeText ([System.IO.Path]::Combine($MarkerDirectory, "$Id.json")) (ConvertTo-Json -InputObject $marker -Compress)
}
