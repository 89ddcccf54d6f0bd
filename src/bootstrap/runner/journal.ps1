# What is remembered and said: state, markers, log, report lines. Secrets are cut out of both.

$StateDirectory = "$Root\state"
$StateFile = "$StateDirectory\state.json"
$MarkerDirectory = "$StateDirectory\items"
$FinishedFile = "$StateDirectory\finished"
$LogFile = "$Root\bootstrap.log"
$ReportFile = "$Root\report.log"
# Bytes after which a file becomes `.1`.
$LogLimit = 5242880
# A guest agent reads the reports as a whole.
$ReportLimit = 32768
$State = $null
$Plan = $null

# A property that may be missing.
function Get-Field($Object, [string] $Name, $Default) {
    $property = $Object.PSObject.Properties[$Name]
    if ($null -eq $property) { return $Default }
    return $property.Value
}

function Get-TextDigest([string] $Text) {
    $algorithm = [System.Security.Cryptography.SHA256]::Create()
    $bytes = $algorithm.ComputeHash([System.Text.Encoding]::UTF8.GetBytes($Text))
    return [System.BitConverter]::ToString($bytes).Replace('-', '').ToLowerInvariant()
}

function Get-ItemDigest($Item) {
    return Get-TextDigest (ConvertTo-Json -InputObject $Item -Depth 12 -Compress)
}

# Writes a file so that a kill leaves the old or the new one.
function Write-Whole([string] $Path, [string] $Text) {
    $temporary = "$Path.new"
    [System.IO.File]::WriteAllText($temporary, $Text)
    Move-Over $temporary $Path
}

function Move-Over([string] $From, [string] $To) {
    if ([System.IO.File]::Exists($To)) {
        [System.IO.File]::Replace($From, $To, [NullString]::Value)
    } else {
        [System.IO.File]::Move($From, $To)
    }
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

# Reads what is remembered of this plan; another plan starts anew, the sequence of its reports goes on.
function Open-State([string] $Digest) {
    [void] [System.IO.Directory]::CreateDirectory($MarkerDirectory)
    $boot = Get-BootId
    $known = $null
    if (Test-Path -LiteralPath $StateFile) { $known = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($StateFile)) }
    $sequence = [int64] 0
    $boots = 1
    if ($null -ne $known) {
        $sequence = [int64] $known.sequence
        $boots = [int] $known.boots
        if ($known.boot -cne $boot) { $boots++ }
    }
    if ($null -eq $known -or $known.digest -cne $Digest) {
        if (Test-Path -LiteralPath $FinishedFile) { Remove-Item -LiteralPath $FinishedFile -Force }
        $known = New-Object PSObject -Property @{ digest = $Digest; started = [string] [System.DateTime]::UtcNow.Ticks; reboots = 0 }
    }
    $script:State = New-Object PSObject -Property @{
        digest = $Digest; started = $known.started; reboots = [int] $known.reboots; sequence = $sequence; boot = $boot; boots = $boots
    }
    Save-State
}

function Save-State {
    Write-Whole $StateFile (ConvertTo-Json -InputObject $State -Compress)
}

# What is known of an item: digest of its definition, and when it last changed something (UTC ticks, 0: never).
function Get-Marker([string] $Id) {
    $path = "$MarkerDirectory\$Id.json"
    if (-not (Test-Path -LiteralPath $path)) { return $null }
    return ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($path))
}

function Set-Marker([string] $Id, [string] $Digest, [int64] $Acted) {
    $marker = New-Object PSObject -Property @{ digest = $Digest; acted = [string] $Acted }
    Write-Whole "$MarkerDirectory\$Id.json" (ConvertTo-Json -InputObject $marker -Compress)
}

function Hide-Secret([string] $Text) {
    if ($null -eq $Plan) { return $Text }
    foreach ($pattern in @($Plan.redact)) { $Text = $Text -replace $pattern, '[hidden]' }
    return $Text
}

function Add-Line([string] $Path, [string] $Line, [int64] $Limit) {
    $file = New-Object System.IO.FileInfo($Path)
    if ($file.Exists -and $file.Length -gt $Limit) {
        if ([System.IO.File]::Exists("$Path.1")) { [System.IO.File]::Delete("$Path.1") }
        [System.IO.File]::Move($Path, "$Path.1")
    }
    [System.IO.File]::AppendAllText($Path, "$Line`r`n")
}

function Write-Log([string] $Text) {
    Add-Line $LogFile "$([System.DateTime]::UtcNow.ToString('o')) $(Hide-Secret $Text)" $LogLimit
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
    if ($clean.Length -gt 240) { $clean = $clean.Substring(0, 240) }
    $sum = Get-Adler32 "$Sequence $Boot $Item $What $Code $clean"
    return "capw1 $Sequence $Boot $Item $What $Code $sum $clean"
}

# Tells how an item is, on every channel that is there. One that fails is left out: the plan matters more than its report.
function Send-Report([string] $Item, [string] $What, [int64] $Code, [string] $Message) {
    # Without a state the disk or the plan is what fails; that is said all the same.
    $sequence = [int64] 1
    $boots = 0
    if ($null -ne $State) {
        $State.sequence = [int64] $State.sequence + 1
        Save-State
        $sequence = $State.sequence
        $boots = $State.boots
    }
    $line = Get-ReportLine $sequence $boots $Item $What $Code (Hide-Secret $Message)
    Write-Log $line
    $channels = @('serial:COM1', 'guestinfo', 'kvp', 'file')
    if ($null -ne $Plan) { $channels = @($Plan.report) }
    foreach ($channel in $channels) {
        try {
            if ($channel -eq 'file') { Add-Line $ReportFile $line $ReportLimit }
            if ($channel -eq 'guestinfo') { Send-GuestInfo $line }
            if ($channel -eq 'kvp') { Send-KeyValue $line }
            if ($channel -like 'serial:*') { Send-Serial $channel.Substring(7) $line }
        } catch {
            Write-Log "report to ${channel}: $($_.Exception.Message)"
        }
    }
}

# VMware's tools hand the value to the host, which reads it as guestinfo.capw.report.
function Send-GuestInfo([string] $Line) {
    $request = ConvertTo-Argument "info-set guestinfo.capw.report $Line"
    foreach ($tool in @(@('rpctool.exe', $request), @('vmtoolsd.exe', "--cmd $request"))) {
        $path = "$env:ProgramFiles\VMware\VMware Tools\$($tool[0])"
        if (-not [System.IO.File]::Exists($path)) { continue }
        $process = Start-Process -FilePath $path -ArgumentList $tool[1] -WindowStyle Hidden -PassThru
        # Without its handle the exit code is lost when the program ends.
        $null = $process.Handle
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
    # Milliseconds; nobody may read at the other end.
    $serial.WriteTimeout = 2000
    try {
        $serial.Open()
        $serial.Write("$Line`r`n")
    } finally {
        $serial.Dispose()
    }
}
