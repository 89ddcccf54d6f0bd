# Writes what tells why a machine does not work into one text file, without secrets: reports, logs, services, events of Windows.
# `capw diagnose logs FILE` reads it as it is; before each part stands a line `==> NAME <==`. Run it as an administrator, by hand or by a
# guest agent; -Print writes to the standard output, which an agent hands to the host.
# Directories: where logs are, and one level below; divided by |.
param(
    [string] $To = 'C:\ProgramData\capw\collected.log', [switch] $Print, [int] $Kilobytes = 1024,
    [string] $Directories = 'C:\ProgramData\capw|C:\var\log|C:\Program Files\Cloudbase Solutions\Cloudbase-Init\log|C:\Windows\Temp'
)
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

# What looks like a secret is hidden: better too much than too little.
$Patterns = @(
    '\b[a-z0-9]{6}\.[a-z0-9]{16}\b', 'eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*', '(?<=://)[^/@\s]+(?=@)',
    '(?i)(?<=\b(?:password|passwd|pwd|secret|token|authorization|apikey|api-key|access-key)\b["'']?\s*[:=]\s*["'']?(?:bearer\s+|basic\s+)?)[^\s"'',;]+',
    '(?i)(?<=\b(?:bearer|basic)\s+)[A-Za-z0-9+/_.=-]{12,}', '\b[A-Za-z0-9+/]{120,}={0,2}'
)

# Lines without what looks like a secret. A private key is many lines long.
function Hide-Secret([string[]] $Lines) {
    $key = $false
    foreach ($line in $Lines) {
        if ($line -match '-----BEGIN [A-Z ]*PRIVATE KEY-----') { $key = $true }
        $text = $line
        if ($key) { $text = '[hidden]' }
        if ($line -match '-----END [A-Z ]*PRIVATE KEY-----') { $key = $false }
        foreach ($pattern in $Patterns) { $text = $text -replace $pattern, '[hidden]' }
        $text -replace '[^\t -~]', '?'
    }
}

# The last lines of a file that its writer may hold open. One that was cut begins with its first whole line.
function Read-Tail([string] $Path, [int64] $Bytes) {
    $stream = New-Object System.IO.FileStream($Path, [System.IO.FileMode]::Open, [System.IO.FileAccess]::Read, [System.IO.FileShare]'ReadWrite, Delete')
    try {
        $cut = $stream.Length -gt $Bytes
        if ($cut) { $null = $stream.Seek(-$Bytes, [System.IO.SeekOrigin]::End) }
        $lines = (New-Object System.IO.StreamReader($stream)).ReadToEnd() -split "`r?`n"
    } finally { $stream.Dispose() }
    if ($cut) { return @($lines | Select-Object -Skip 1) }
    return $lines
}

# Log files in a directory and those below it. Not by links: what they lead to is of others.
function Find-Log([string] $Directory) {
    if (-not [System.IO.Directory]::Exists($Directory)) { return }
    $linked = [System.IO.FileAttributes]::ReparsePoint
    $below = @([System.IO.Directory]::GetDirectories($Directory) | Where-Object { -not ([System.IO.File]::GetAttributes($_) -band $linked) })
    foreach ($place in @($Directory) + $below) {
        # One that may not be read, or is gone meanwhile, costs its own files only.
        try { $found = @([System.IO.Directory]::GetFiles($place, '*.log')) } catch { $found = @() }
        $found | Where-Object { -not ([System.IO.File]::GetAttributes($_) -band $linked) }
    }
}

# Errors and warnings of Windows, oldest first: `<log> <id> <message>`.
function Get-EventLine {
    foreach ($log in @('System', 'Application')) {
        try { $events = @(Get-WinEvent -FilterHashtable @{ LogName = $log; Level = @(1, 2, 3) } -MaxEvents 300) } catch { $events = @() }
        [System.Array]::Reverse($events)
        foreach ($event in $events) {
            "$log $($event.Id) $($event.TimeCreated.ToUniversalTime().ToString('o')) $($event.ProviderName): $(([string] $event.Message) -replace '\s+', ' ')"
        }
    }
}

function Get-ServiceLine {
    foreach ($service in @(Get-CimInstance -ClassName Win32_Service)) {
        "$($service.Name) $($service.State) $($service.StartMode) exit=$($service.ExitCode) $($service.PathName)"
    }
}

# A part that cannot be had says why.
function Get-Part([string] $Name, [scriptblock] $Read) {
    "==> $Name <=="
    try { Hide-Secret @(& $Read) } catch { Hide-Secret @("cannot be read: $($_.Exception.Message)") }
    ''
}

$collected = @(
    Get-Part 'services.txt' { Get-ServiceLine }
    Get-Part 'System.csv' { Get-EventLine }
    foreach ($directory in $Directories.Split('|')) {
        foreach ($path in @(Find-Log $directory)) {
            if ($path -ne $To) { Get-Part $path { Read-Tail $path ($Kilobytes * 1024) } }
        }
    }
)
if ($Print) {
    $collected
} else {
    [System.IO.File]::WriteAllLines($To, [string[]] $collected)
    "written: $To"
}
