# What the machine says of itself, and where. The loader carries a copy of this file, so it works without a plan and without a state, and
# no report throws: a full disk, a file that another program holds and a busy channel may each cost a copy of a line, never the line.

$LogFile = [System.IO.Path]::Combine($Root, 'bootstrap.log')
# For lines that the log does not take.
$SpareLogFile = [System.IO.Path]::Combine([System.IO.Path]::GetTempPath(), 'capw.log')
$ReportFile = [System.IO.Path]::Combine($Root, 'report.log')
$StateFile = [System.IO.Path]::Combine($Root, 'state', 'state.json')
# Bytes after which a file becomes `.1`.
$LogLimit = 5242880
# A guest agent reads the reports as a whole.
$ReportLimit = 32768
$Plan = $null
# used: seconds that runners have worked on the plan. outcome: how a runner ended at this start of Windows, `restart` or `failed`.
# theirs: Windows was restarted because it asked for it by itself. cleaning: all is done, and what is secret is being removed.
$State = @{
    digest = ''; used = 0; reboots = 0; sequence = [int64] 0; boot = ''; boots = 0; outcome = ''; theirs = $false; cleaning = $false
}
# open: the state was read. anew: there was none. lost: something that later starts need could not be written. before: seconds that earlier
# runners worked.
$Journal = @{ open = $false; anew = $false; lost = $false; before = 0 }

# A property that may be missing.
function Get-Field($Object, [string] $Name, $Default) {
    $property = $Object.PSObject.Properties[$Name]
    if ($null -eq $property) { return $Default }
    return $property.Value
}

function Hide-Secret([string] $Text) {
    if ($null -eq $Plan) { return $Text }
    try {
        foreach ($pattern in @($Plan.redact)) { $Text = $Text -creplace $pattern, '[hidden]' }
        return $Text
    } catch {
        return '[hidden]'
    }
}

function Add-Line([string] $Path, [string] $Line, [int64] $Limit) {
    $file = New-Object System.IO.FileInfo($Path)
    if ($file.Exists -and $file.Length -gt $Limit) {
        # A file that is too long is better than a line that is lost.
        try { [System.IO.File]::Delete("$Path.1"); [System.IO.File]::Move($Path, "$Path.1") } catch { $null = $_ }
    }
    [System.IO.File]::AppendAllText($Path, "$Line`r`n")
}

function Write-Log([string] $Text) {
    $line = "$([System.DateTime]::UtcNow.ToString('o')) $(Hide-Secret $Text)"
    foreach ($path in @($LogFile, $SpareLogFile)) {
        try { Add-Line $path $line $LogLimit; return } catch { $null = $_ }
    }
}

# RFC 1950, as eight hexadecimal digits.
function Get-Adler32([string] $Text) {
    [int64] $a = 1
    [int64] $b = 0
    foreach ($byte in [System.Text.Encoding]::ASCII.GetBytes($Text)) {
        $a = ($a + $byte) % 65521
        $b = ($b + $a) % 65521
    }
    return '{0:x8}' -f ($b * 65536 + $a)
}

# One line `capw1 <seq> <boot> <item> <state> <code> <sum> <message>`, the same to every channel.
function Get-ReportLine([int64] $Sequence, [int] $Boot, [string] $Item, [string] $What, [int64] $Code, [string] $Message) {
    $clean = $Message -creplace '[^ -~]', '?'
    # Blanks at the end of a value are lost in some channels, and with them the check sum.
    $clean = $clean.Substring(0, [System.Math]::Min(240, $clean.Length)).TrimEnd()
    $sum = Get-Adler32 "$Sequence $Boot $Item $What $Code $clean"
    return "capw1 $Sequence $Boot $Item $What $Code $sum $clean"
}

# A scanner may hold a file for a moment.
function Read-Text([string] $Path) {
    for ($attempt = 1; $true; $attempt++) {
        try {
            return [System.IO.File]::ReadAllText($Path)
        } catch {
            if ($attempt -ge 10 -or -not [System.IO.File]::Exists($Path)) { throw }
            Start-Sleep -Milliseconds 200
        }
    }
}

# The highest number that any file remembers: of two reports readers take the one with the higher number for the newer one.
function Get-LastSequence {
    $last = [int64] 0
    foreach ($path in @($StateFile, "$StateFile.old", $ReportFile, "$ReportFile.1")) {
        if (-not [System.IO.File]::Exists($path)) { continue }
        try {
            foreach ($match in [System.Text.RegularExpressions.Regex]::Matches((Read-Text $path), '(?:capw1 |"sequence":)(\d{1,18})\b')) {
                $last = [System.Math]::Max($last, [int64] $match.Groups[1].Value)
            }
        } catch {
            Write-Log "$path cannot be read: $($_.Exception.Message)"
        }
    }
    return $last
}

# A guest agent that reads the file keeps it from being written, for a moment.
function Add-Report([string] $Line) {
    for ($attempt = 1; $true; $attempt++) {
        try { Add-Line $ReportFile $Line $ReportLimit; return } catch { if ($attempt -ge 10) { throw } }
        Start-Sleep -Milliseconds 50
    }
}

# Tells how an item is, on every channel that is there. One that fails is left out: the plan matters more than its report.
function Send-Report([string] $Item, [string] $What, [int64] $Code, [string] $Message) {
    if (-not $Journal.open) { $State.sequence = [System.Math]::Max($State.sequence, (Get-LastSequence)) }
    $State.sequence = [int64] $State.sequence + 1
    if ($Journal.open) {
        try {
            Save-State
        } catch {
            $Journal.lost = $true
            Write-Log "the state cannot be saved: $($_.Exception.Message)"
        }
    }
    $line = Get-ReportLine $State.sequence $State.boots $Item $What $Code (Hide-Secret $Message)
    Write-Log $line
    $channels = @('serial:COM1', 'guestinfo', 'kvp', 'file')
    if ($null -ne $Plan) { $channels = @(Get-Field $Plan 'report' $channels) }
    foreach ($channel in $channels) {
        try {
            if ($channel -eq 'file') { Add-Report $line }
            if ($channel -eq 'guestinfo') { Send-GuestInfo $line }
            if ($channel -eq 'kvp') { Send-KeyValue $line }
            if ($channel -like 'serial:*') { Send-Serial $channel.Substring(7) $line }
        } catch {
            Write-Log "report to ${channel}: $($_.Exception.Message)"
        }
    }
}

# `<file>:<line> <message>` of an error. Of a script that is not PowerShell: the place in it, not the place that loads it.
function Get-Failure($Problem) {
    $message = $Problem.Exception.Message
    $file = ''
    $line = 0
    if ($null -ne $Problem.InvocationInfo) {
        $file = $Problem.InvocationInfo.ScriptName
        $line = $Problem.InvocationInfo.ScriptLineNumber
    }
    if ($Problem.Exception -is [System.Management.Automation.ParseException] -and $null -ne $Problem.Exception.Errors) {
        $first = @($Problem.Exception.Errors)[0]
        $message = $first.Message
        $file = $first.Extent.File
        $line = $first.Extent.StartLineNumber
    }
    return "$([System.IO.Path]::GetFileName($file)):$line $message"
}

# The loader or the runner itself failed: nothing can be said of an item.
function Send-Failure($Problem) {
    $failure = Get-Failure $Problem
    Write-Log "$failure $($Problem.ScriptStackTrace)"
    Send-Report 'plan' 'failed' 11 $failure
}

# One argument as the C runtime of the program reads it back.
function ConvertTo-Argument([string] $Text) {
    if ($Text -ne '' -and $Text -notmatch '[\s"]') { return $Text }
    $escaped = ($Text -replace '(\\*)"', '$1$1\"') -replace '(\\+)$', '$1$1'
    return "`"$escaped`""
}

# Not Start-Process: that of 5.1 may lose the exit code of a program that ends at once.
function Start-Program([string] $Path, [string] $CommandLine, [string] $Directory) {
    $start = New-Object System.Diagnostics.ProcessStartInfo($Path, $CommandLine)
    $start.WorkingDirectory = $Directory
    $start.UseShellExecute = $false
    $start.RedirectStandardOutput = $true
    $start.RedirectStandardError = $true
    return [System.Diagnostics.Process]::Start($start)
}

# VMware's tools hand the value to the host, which reads it as guestinfo.capw.report.
function Send-GuestInfo([string] $Line) {
    $request = ConvertTo-Argument "info-set guestinfo.capw.report $Line"
    foreach ($tool in @(@('rpctool.exe', $request), @('vmtoolsd.exe', "--cmd $request"))) {
        $path = [System.IO.Path]::Combine([string] $env:ProgramFiles, 'VMware', 'VMware Tools', $tool[0])
        if (-not [System.IO.File]::Exists($path)) { continue }
        $process = Start-Program $path $tool[1] $Root
        if (-not $process.WaitForExit(5000)) {
            $process.Kill()
            throw "$($tool[0]) did not end within 5 seconds"
        }
        if ($process.ExitCode -ne 0) { throw "$($tool[0]) ended with $($process.ExitCode)" }
        return
    }
}

# Hyper-V's exchange service makes the key Parameters, and hands the values beside it to the host.
function Send-KeyValue([string] $Line) {
    $guest = 'HKLM:\SOFTWARE\Microsoft\Virtual Machine\Guest'
    if (-not (Test-Path -LiteralPath "$guest\Parameters")) { return }
    $null = New-ItemProperty -LiteralPath $guest -Name 'capw.report' -PropertyType String -Value $Line -Force
}

function Send-Serial([string] $Port, [string] $Line) {
    if ([System.IO.Ports.SerialPort]::GetPortNames() -notcontains $Port) { return }
    $serial = New-Object System.IO.Ports.SerialPort($Port, 115200)
    # Milliseconds; the other end may not be read.
    $serial.WriteTimeout = 2000
    try {
        $serial.Open()
        $serial.Write("$Line`r`n")
    } finally { $serial.Dispose() }
}
