#ps1_sysnative
# Unpacks the archive below into a directory that only administrators can read, and starts the runner in it.
# It may be started any number of times: what is unpacked is not unpacked again, what is finished is left alone.
# Exit codes for cloudbase-init: 0 done, 1002 try again at the next start, 1003 restart and try again.
param([ValidateSet('cloudbase', 'task')][string] $Source = 'cloudbase')
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$root = 'C:\ProgramData\capw'
$payload = "$root\payload"
$archive = @'
@ARCHIVE@
'@

function Get-Sha256([byte[]] $Bytes) {
    $algorithm = [System.Security.Cryptography.SHA256]::Create()
    return [System.BitConverter]::ToString($algorithm.ComputeHash($Bytes)).Replace('-', '').ToLowerInvariant()
}

function Expand-Payload([byte[]] $Packed, [string] $Directory) {
    $stream = [System.IO.Compression.GZipStream]::new([System.IO.MemoryStream]::new($Packed), [System.IO.Compression.CompressionMode]::Decompress)
    $memory = [System.IO.MemoryStream]::new()
    $stream.CopyTo($memory)
    $bytes = $memory.ToArray()
    $at = 0
    while ($at -lt $bytes.Length) {
        # Per file: a line `<sha256> <length> <path>`, then its bytes.
        $end = [System.Array]::IndexOf($bytes, [byte] 10, $at)
        $fields = [System.Text.Encoding]::ASCII.GetString($bytes, $at, $end - $at) -split ' ', 3
        $content = [byte[]]::new([int] $fields[1])
        [System.Array]::Copy($bytes, $end + 1, $content, 0, $content.Length)
        if ((Get-Sha256 $content) -cne $fields[0]) { throw "$($fields[2]) is damaged" }
        $target = "$Directory\$($fields[2].Replace('/', '\'))"
        [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($target))
        [System.IO.File]::WriteAllBytes($target, $content)
        $at = $end + 1 + $content.Length
    }
}

try {
    $security = New-Object System.Security.AccessControl.DirectorySecurity
    $security.SetSecurityDescriptorSddlForm('D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)', [System.Security.AccessControl.AccessControlSections]::Access)
    [void] [System.IO.Directory]::CreateDirectory($root)
    [System.IO.Directory]::SetAccessControl($root, $security)

    $packed = [System.Convert]::FromBase64String($archive)
    $digest = Get-Sha256 $packed
    $stamp = "$root\payload.sha256"
    if (-not (Test-Path -LiteralPath $stamp) -or [System.IO.File]::ReadAllText($stamp) -cne $digest) {
        # The stamp comes last: a kill before it unpacks again.
        if (Test-Path -LiteralPath $stamp) { Remove-Item -LiteralPath $stamp -Force }
        if (Test-Path -LiteralPath $payload) { Remove-Item -LiteralPath $payload -Recurse -Force }
        Expand-Payload $packed $payload
        [System.IO.File]::WriteAllText($stamp, $digest)
    }
} catch {
    $text = "the payload cannot be unpacked: $($_.Exception.Message)" -creplace '[^ -~]', '?'
    if ($text.Length -gt 240) { $text = $text.Substring(0, 240) }
    # A report as the runner writes them (Get-ReportLine), in a log and on the first serial port.
    $a = 1
    $b = 0
    foreach ($byte in [System.Text.Encoding]::ASCII.GetBytes("1 0 plan failed 11 $text")) { $a = ($a + $byte) % 65521; $b = ($b + $a) % 65521 }
    $line = "capw1 1 0 plan failed 11 $('{0:x8}' -f ([int64] $b * 65536 + $a)) $text`r`n"
    try { [System.IO.File]::AppendAllText("$env:SystemRoot\Temp\capw-loader.log", $line) } catch { $null = $_ }
    try {
        $serial = New-Object System.IO.Ports.SerialPort('COM1', 115200)
        $serial.WriteTimeout = 2000
        $serial.Open()
        $serial.Write($line)
        $serial.Dispose()
    } catch { $null = $_ }
    exit 1002
}

# cloudbase-init runs a copy of this file, and removes it only if nothing kills it before.
if ($Source -eq 'cloudbase') { try { [System.IO.File]::WriteAllText($PSCommandPath, '') } catch { $null = $_ } }
& "$payload\runner\run.ps1" -Source $Source
exit $LASTEXITCODE
