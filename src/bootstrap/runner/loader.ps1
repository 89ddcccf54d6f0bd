#ps1_sysnative
# Checks the payload against its archive, unpacks what is missing or damaged, and starts the runner in it. User data is this script with
# the archive in it, or, on a drive, beside it: Windows may keep the text of scripts in its event log, and the archive holds secrets. A task
# at each start of the machine runs a copy without one, which takes the archive from the disk.
# It may be started any number of times: what is finished is left alone.
# Exit codes for cloudbase-init: 0 done, 1002 try again at the next start, 1003 restart and try again.
param([ValidateSet('cloudbase', 'task')][string] $Source = 'cloudbase', [string] $Root = 'C:\ProgramData\capw')
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$archive = @'

'@
# Of the archive on the drive; '' if there is none.
$archiveDigest = ''
. "$PSScriptRoot/files.ps1"
. "$PSScriptRoot/report.ps1"

# The files of an archive, which holds per file a line `<sha256> <length> <path>` and then its bytes.
function Read-Archive([byte[]] $Packed) {
    $stream = [System.IO.Compression.GZipStream]::new([System.IO.MemoryStream]::new($Packed), [System.IO.Compression.CompressionMode]::Decompress)
    $memory = [System.IO.MemoryStream]::new()
    $stream.CopyTo($memory)
    $bytes = $memory.ToArray()
    $at = 0
    while ($at -lt $bytes.Length) {
        $end = [System.Array]::IndexOf($bytes, [byte] 10, $at)
        $digest, $length, $path = [System.Text.Encoding]::ASCII.GetString($bytes, $at, $end - $at) -split ' ', 3
        $content = [byte[]]::new([int] $length)
        [System.Array]::Copy($bytes, $end + 1, $content, 0, $content.Length)
        if ((Get-Sha256 $content) -cne $digest) { throw "$path in the archive is damaged" }
        New-Object PSObject -Property @{ path = $path; digest = $digest; content = $content }
        $at = $end + 1 + $content.Length
    }
}

# The plan in the files of an archive.
function Get-PlanFile($Files) {
    $node = @($Files | Where-Object { $_.path -eq 'node.json' })
    if ($node.Count -ne 1) { throw 'the archive has no plan' }
    return $node[0]
}

# The digest of the plan that was unpacked; '' if there is none.
function Get-UnpackedPlan([string] $Payload) {
    $path = [System.IO.Path]::Combine($Payload, 'node.json')
    if (-not [System.IO.File]::Exists($path)) { return '' }
    return Get-Sha256 ([System.IO.File]::ReadAllBytes($path))
}

# The bytes of each payload.gz beside this script and on drives.
function Get-DeliveredArchive {
    foreach ($root in @($PSScriptRoot) + @(Get-DriveRoot)) {
        $path = [System.IO.Path]::Combine($root, 'payload.gz')
        if (-not [System.IO.File]::Exists($path)) { continue }
        try { , [System.IO.File]::ReadAllBytes($path) } catch { Write-Log "$path cannot be read: $($_.Exception.Message)" }
    }
}

# The archive that was kept, or $null: the plan is at its end, and has removed all that holds secrets. One that is damaged is taken again
# from where it was delivered: of what drives have, it is the one with the plan that was unpacked.
function Get-KeptArchive([string] $Kept, [string] $Payload) {
    if (-not [System.IO.File]::Exists($Kept)) { return $null }
    $bytes = [System.IO.File]::ReadAllBytes($Kept)
    try {
        $null = Get-PlanFile @(Read-Archive $bytes)
        return , $bytes
    } catch { $problem = $_.Exception.Message }
    Write-Log "$Kept is damaged: $problem"
    $plan = Get-UnpackedPlan $Payload
    foreach ($bytes in @(Get-DeliveredArchive)) {
        try { if ((Get-PlanFile @(Read-Archive $bytes)).digest -ceq $plan) { return , $bytes } } catch { Write-Log "a payload.gz is damaged: $_" }
    }
    throw "$Kept is damaged, and no drive has the payload of this plan: replace this machine ($problem)"
}

# cloudbase-init runs a copy of this script that does not lie on the drive.
function Get-Archive([string] $Kept, [string] $Payload) {
    if ($archive -ne '') { return , [System.Convert]::FromBase64String($archive) }
    if ($archiveDigest -eq '') { return , (Get-KeptArchive $Kept $Payload) }
    if ([System.IO.File]::Exists($Kept)) {
        $bytes = [System.IO.File]::ReadAllBytes($Kept)
        if ((Get-Sha256 $bytes) -ceq $archiveDigest) { return , $bytes }
    }
    foreach ($bytes in @(Get-DeliveredArchive)) { if ((Get-Sha256 $bytes) -ceq $archiveDigest) { return , $bytes } }
    throw "expected payload.gz with digest $archiveDigest beside this script or on a drive, found none"
}

function Update-Payload([string] $Payload) {
    $kept = [System.IO.Path]::Combine($Root, 'payload.gz')
    $packed = Get-Archive $kept $Payload
    if ($null -eq $packed) { return }
    $files = @(Read-Archive $packed)
    $node = Get-PlanFile $files
    if (Test-Finished $node.digest) { return }
    if (-not [System.IO.File]::Exists($kept) -or (Get-Sha256 ([System.IO.File]::ReadAllBytes($kept))) -cne (Get-Sha256 $packed)) {
        # Nothing of another payload may stay. Of the same one all stays: the boot task needs it if the power is cut now.
        if ([System.IO.Directory]::Exists($Payload) -and (Get-UnpackedPlan $Payload) -cne $node.digest) { [System.IO.Directory]::Delete($Payload, $true) }
        Write-Whole $kept $packed
    }
    $unpacked = 0
    foreach ($file in $files) {
        $path = [System.IO.Path]::GetFullPath([System.IO.Path]::Combine($Payload, $file.path))
        if ([System.IO.File]::Exists($path) -and (Get-Sha256 ([System.IO.File]::ReadAllBytes($path))) -ceq $file.digest) { continue }
        [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($path))
        Write-Whole $path $file.content
        $unpacked++
    }
    if ($unpacked -gt 0) { Write-Log "unpacked $unpacked of $($files.Count) files" }
}

$code = 1002
$lock = $null
try {
    [void] [System.IO.Directory]::CreateDirectory($Root)
    Protect-Directory $Root
    $lock = Enter-Lock 3600
    if ($null -eq $lock) {
        Write-Log 'another runner has been busy for an hour'
    } else {
        $payload = [System.IO.Path]::Combine($Root, 'payload')
        Update-Payload $payload
        # cloudbase-init runs a copy of this file, and removes it only if nothing kills it before.
        if ($archive -ne '' -and $Source -eq 'cloudbase') { try { [System.IO.File]::WriteAllText($PSCommandPath, '') } catch { $null = $_ } }
        # A runner that reaches its end sets it.
        $global:LASTEXITCODE = -1
        & ([System.IO.Path]::Combine($payload, 'runner', 'run.ps1')) -Source $Source -Locked
        if (@(0, 1002, 1003) -notcontains $LASTEXITCODE) { throw "the runner ended with $LASTEXITCODE before it reported" }
        $code = $LASTEXITCODE
    }
} catch {
    try { Send-Failure $_ } catch { $null = $_ }
} finally {
    if ($null -ne $lock) { $lock.Dispose() }
}
exit $code
