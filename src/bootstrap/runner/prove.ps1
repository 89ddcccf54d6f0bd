# Shows on a real Windows what a plan does there. It changes the machine for good: use one that you throw away, as an administrator.
#
#   powershell.exe -NoProfile -ExecutionPolicy RemoteSigned -File prove.ps1 -From DIRECTORY
#
# DIRECTORY, by default that of this script, holds what `capw render --output` wrote for a machine. The runner is killed at every item as soon
# as it has begun, and started again; restarts are real, and this script goes on after them by itself. In the end the plan is carried out once
# more without its state: every item must be true already. The table is printed and written to DIRECTORY\proof.txt.
# Until: the first item that is left out, with all after it: the join needs more than this machine. '': none. Skip: other items, by wildcard.
param(
    [string] $From = '', [string] $Until = 'join', [string[]] $Skip = @('clock', 'host-name'),
    [string] $Root = 'C:\ProgramData\capw', [string] $Shell = (Get-Process -Id $PID).Path, [switch] $Resume
)
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$task = 'capw-proof'
if ($From -eq '') { $From = $PSScriptRoot }
$From = [System.IO.Path]::GetFullPath($From)
$proofFile = [System.IO.Path]::Combine($From, 'proof.json')
$payload = [System.IO.Path]::Combine($Root, 'payload')
$report = [System.IO.Path]::Combine($Root, 'report.log')
$state = [System.IO.Path]::Combine($Root, 'state')

function Save-Proof($Proof) {
    [System.IO.File]::WriteAllText($proofFile, (ConvertTo-Json -InputObject $Proof -Depth 5))
}

# The payload as a loader would unpack it, with the items that are wanted.
function Install-Payload {
    foreach ($part in @('runner', 'files', 'secret')) {
        $source = [System.IO.Path]::Combine($From, $part)
        if (-not [System.IO.Directory]::Exists($source)) { continue }
        [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::Combine($payload, $part))
        foreach ($file in [System.IO.Directory]::GetFiles($source)) {
            [System.IO.File]::Copy($file, [System.IO.Path]::Combine($payload, $part, [System.IO.Path]::GetFileName($file)), $true)
        }
    }
    $plan = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText([System.IO.Path]::Combine($From, 'node.json')))
    $items = New-Object System.Collections.ArrayList
    foreach ($item in $plan.items) {
        if ($item.id -eq $Until) { break }
        if (@($Skip | Where-Object { $item.id -like $_ }).Count -eq 0) { [void] $items.Add($item) }
    }
    $plan.items = $items.ToArray()
    # Each kill takes time of the plan.
    $plan.limits.minutes = 10 * $plan.limits.minutes
    [System.IO.File]::WriteAllText([System.IO.Path]::Combine($payload, 'node.json'), (ConvertTo-Json -InputObject $plan -Depth 12))
    return @($plan.items | ForEach-Object { New-Object PSObject -Property @{ id = $_.id; kind = $_.kind } })
}

# This script at each start of Windows.
function Register-Proof {
    $arguments = "-NoProfile -NonInteractive -ExecutionPolicy RemoteSigned -File `"$PSCommandPath`" -From `"$From`" -Root `"$Root`" -Resume"
    $definition = @{
        TaskName = $task; Force = $true
        Action = New-ScheduledTaskAction -Execute $Shell -Argument $arguments
        Trigger = New-ScheduledTaskTrigger -AtStartup
        Principal = New-ScheduledTaskPrincipal -UserId 'S-1-5-18' -LogonType ServiceAccount -RunLevel Highest
        Settings = New-ScheduledTaskSettingsSet -ExecutionTimeLimit ([System.TimeSpan]::Zero) -Priority 4
    }
    $null = Register-ScheduledTask @definition
}

# Reports as objects, in order.
function Read-Report {
    $found = New-Object System.Collections.ArrayList
    foreach ($path in @("$report.1", $report)) {
        if (-not [System.IO.File]::Exists($path)) { continue }
        $stream = New-Object System.IO.FileStream($path, [System.IO.FileMode]::Open, [System.IO.FileAccess]::Read, [System.IO.FileShare]'ReadWrite, Delete')
        try { $text = (New-Object System.IO.StreamReader($stream)).ReadToEnd() } finally { $stream.Dispose() }
        foreach ($line in [System.Text.RegularExpressions.Regex]::Matches($text, '(?m)^capw1 (\d+) (\d+) (\S+) (\S+) (\d+) [0-9a-f]{8} ?(.*?)\r?$')) {
            $part = @($line.Groups | ForEach-Object { $_.Value })
            [void] $found.Add((New-Object PSObject -Property @{ sequence = [int64] $part[1]; boot = [int] $part[2]; item = $part[3]; what = $part[4]; code = $part[5]; message = $part[6] }))
        }
    }
    return $found.ToArray()
}

# Ends every process that carries out the plan, also one that the task at the start of Windows runs.
function Stop-Runner {
    foreach ($process in @(Get-CimInstance -ClassName Win32_Process | Where-Object { ([string] $_.CommandLine).Contains("$payload") -and $_.ProcessId -ne $PID })) {
        $null = & "$env:SystemRoot\System32\taskkill.exe" /T /F /PID $process.ProcessId
    }
}

# Runs the plan until it ends, or until an item begins at which it was not killed yet. Returns whether it was killed.
function Invoke-Runner($Proof, [bool] $Kill) {
    $before = [int64] 0
    foreach ($line in @(Read-Report)) { $before = [System.Math]::Max($before, $line.sequence) }
    $run = [System.IO.Path]::Combine($payload, 'runner', 'run.ps1')
    $start = New-Object System.Diagnostics.ProcessStartInfo($Shell, "-NoProfile -NonInteractive -ExecutionPolicy RemoteSigned -File `"$run`" -Source cloudbase")
    $start.UseShellExecute = $false
    $runner = [System.Diagnostics.Process]::Start($start)
    while (-not $runner.WaitForExit(50)) {
        if (-not $Kill) { continue }
        foreach ($line in @(Read-Report)) {
            if ($line.sequence -le $before -or $line.what -ne 'started' -or $Proof.killed -contains $line.item) { continue }
            $Proof.killed = @($Proof.killed) + $line.item
            Save-Proof $Proof
            Stop-Runner
            if (-not $runner.HasExited) { $runner.Kill() }
            $runner.WaitForExit()
            return $true
        }
    }
    return $false
}

function Get-Fact {
    $windows = Get-ItemProperty -LiteralPath 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion'
    $net = Get-ItemProperty -LiteralPath 'HKLM:\SOFTWARE\Microsoft\NET Framework Setup\NDP\v4\Full'
    "Windows    $($windows.ProductName) $($windows.InstallationType) $($windows.CurrentBuildNumber).$($windows.UBR)"
    "PowerShell $($PSVersionTable.PSVersion), .NET Framework release $($net.Release)"
}

# One line for each item: how often it was begun and killed, how it ended, and whether it was true when it was looked at again.
function Get-Table($Proof) {
    $format = '{0,-30} {1,-18} {2,6} {3,6} {4,-8} {5,-12} {6}'
    $format -f 'ITEM', 'KIND', 'KILLED', 'BEGUN', 'END', 'AGAIN', 'MESSAGE'
    $bad = 0
    $all = @(Read-Report)
    foreach ($item in $Proof.items) {
        $first = @($all | Where-Object { $_.item -eq $item.id -and $_.sequence -le $Proof.first })
        $second = @($all | Where-Object { $_.item -eq $item.id -and $_.sequence -gt $Proof.first })
        $begun = @($first | Where-Object { $_.what -eq 'started' }).Count
        $end = 'none'
        $message = ''
        if ($first.Count -gt 0) { $end = $first[-1].what }
        if (@('failed', 'warned') -contains $end) { $message = "$($first[-1].code) $($first[-1].message)" }
        $again = 'true'
        if ($second.Count -eq 0) { $again = 'left out' }
        if (@($second | Where-Object { $_.what -eq 'started' }).Count -gt 0) { $again = 'NOT TRUE' }
        if (@('failed', 'started', 'retry') -contains $end -or $again -eq 'NOT TRUE') { $bad++ }
        $format -f $item.id, $item.kind, @($Proof.killed | Where-Object { $_ -eq $item.id }).Count, $begun, $end, $again, $message
    }
    "$(@($Proof.items).Count) items, $(@($Proof.killed).Count) kills, $($Proof.restarts) restarts, $bad wrong; last report: $($Proof.last)"
}

if ($Resume) {
    $proof = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($proofFile))
} else {
    if ([System.IO.Directory]::Exists($state)) { throw "$state exists: this machine has carried out a plan before, take a new one" }
    $proof = New-Object PSObject -Property @{ items = @(Install-Payload); killed = @(); restarts = 0; pass = 1; first = 0; last = '' }
    Save-Proof $proof
    Register-Proof
}
while ($proof.pass -le 2) {
    if (Invoke-Runner $proof ($proof.pass -eq 1)) { continue }
    $lines = @(Read-Report)
    if ($lines.Count -gt 0) { $proof.last = "$($lines[-1].item) $($lines[-1].what) $($lines[-1].code) $($lines[-1].message)" }
    if ($lines.Count -gt 0 -and $lines[-1].what -eq 'reboot') {
        $proof.restarts = [int] $proof.restarts + 1
        Save-Proof $proof
        # Forced, and at once.
        $null = Invoke-CimMethod -InputObject (Get-CimInstance -ClassName Win32_OperatingSystem) -MethodName Win32Shutdown -Arguments @{ Flags = 6 }
        exit 0
    }
    if ($proof.pass -eq 1) {
        if ($lines.Count -gt 0) { $proof.first = $lines[-1].sequence }
        # Without its memory the runner has to look at everything.
        if ([System.IO.Directory]::Exists($state)) { [System.IO.Directory]::Delete($state, $true) }
    }
    $proof.pass = [int] $proof.pass + 1
    Save-Proof $proof
}
Unregister-ScheduledTask -TaskName $task -Confirm:$false
$table = @(Get-Fact) + @(Get-Table $proof)
[System.IO.File]::WriteAllLines([System.IO.Path]::Combine($From, 'proof.txt'), [string[]] $table)
$table
