# Carries out a plan: item by item test, act, test again.

$PlanVersion = 1
$Kinds = @(
    'directory', 'file', 'download', 'archive', 'registry', 'serviceEnvironment', 'environment', 'feature', 'firewall', 'service', 'running', 'task', 'command', 'script', 'wait', 'reboot', 'absent'
)
$Scripts = @(
    'identity', 'freeSpace', 'clock', 'winHttpProxy', 'hypervisor', 'defenderExclusions', 'firewallOn', 'dynamicPorts', 'reservedPorts', 'domainJoin', 'credentialPlugin'
)

# The item is true, or it is reported and thrown as failed. Returns 'done' or 'reboot'.
function Invoke-PlanItem($Item) {
    $unless = Get-Field $Item 'unless' $null
    if ($null -ne $unless -and (Test-Check $unless)) { return 'done' }
    $test = "Test-$($Item.kind)Item"
    $act = "Set-$($Item.kind)Item"
    $digest = Get-ItemDigest $Item
    $marker = Get-Marker $Item.id
    # A runner was killed while it did it.
    $begun = $null -ne $marker -and $marker.digest -ceq ''
    if (Test-PlanItem $test $Item) {
        if ($null -eq $marker -or $marker.digest -cne $digest) {
            $processes = @{}
            if ($null -ne $marker) { $processes = $marker.processes }
            if ($begun) { $processes = Get-Processes $Item.id }
            Save-Marker $Item.id $digest $processes
            if ($Item.kind -eq 'reboot' -and (Test-RestartPending)) {
                Send-Report $Item.id 'warned' $Item.code 'Windows asks for a restart by itself, also after one'
            } else {
                Send-Report $Item.id 'done' 0 'was true already'
            }
        }
        return 'done'
    }
    if ($Item.kind -eq 'reboot') {
        if ($State.reboots -ge $Plan.limits.reboots) {
            throw "expected at most $($Plan.limits.reboots) restarts, and one more is asked for"
        }
        return 'reboot'
    }
    $untrue = 'it is still not true after it was done'
    $problem = ''
    for ($attempt = 1; $attempt -le $Item.attempts; $attempt++) {
        Test-Deadline
        Send-Report $Item.id 'started' 0 "attempt $attempt of $($Item.attempts)"
        $problem = $untrue
        try {
            if ($begun) { Undo-PlanItem $Item }
            # Without it a kill would not be noticed: an attempt that cannot note that it begins does nothing.
            Set-Marker $Item.id '' (Get-Processes $Item.id)
            $begun = $true
            $null = & $act $Item
        } catch [System.IO.InvalidDataException] {
            # Data that are wrong stay wrong: that is no reason to try again.
            throw
        } catch { $problem = $_.Exception.Message }
        if (Test-PlanItem $test $Item) {
            Save-Marker $Item.id $digest (Get-Processes $Item.id)
            Send-Report $Item.id 'done' 0 "attempt $attempt"
            return 'done'
        }
        # Its act ended well, and then the service did not stay.
        if ($Item.kind -eq 'running' -and $problem -ceq $untrue) { $problem = "${untrue}: $(Get-ServiceEnd $Item.name)" }
        if ($attempt -lt $Item.attempts) {
            Send-Report $Item.id 'retry' $Item.code $problem
            Start-Sleep -Seconds ([System.Math]::Min(60, 5 * [System.Math]::Pow(2, $attempt - 1)))
        }
    }
    throw $problem
}

# Notes what was found true. What was noted before is still there if this fails, and leads to the same end: the item is tested again, and
# services that read it are started again.
function Save-Marker([string] $Id, [string] $Digest, $Processes) {
    try {
        Set-Marker $Id $Digest $Processes
    } catch {
        $Journal.lost = $true
        Write-Log "the marker of $Id cannot be saved: $($_.Exception.Message)"
    }
}

# A test that cannot be made says that the item is not true; what is done about it then says why.
function Test-PlanItem([string] $Test, $Item) {
    try { return [bool] (& $Test $Item) } catch { Write-Log "$($Item.id): $($_.Exception.Message)" }
    return $false
}

# The processes of the services that must be started after a change of the item.
function Get-Processes([string] $Id) {
    $found = @{}
    foreach ($item in @($Plan.items)) {
        if ($item.kind -eq 'running' -and @(Get-Field $item 'after' @()) -contains $Id) { $found[$item.name] = Get-ServiceProcess $item.name }
    }
    return $found
}

# What an attempt left behind is taken away before the next one; that this fails does not matter.
function Undo-PlanItem($Item) {
    $undo = @(Get-Field $Item 'undo' @())
    if ($undo.Count -eq 0) { return }
    try { Invoke-Program $undo $Item.directory $Item.seconds } catch { Write-Log "undo of $($Item.id): $($_.Exception.Message)" }
}

# Nothing is started after the plan's time, which is the time of its runners: not that of restarts, nor what a clock says.
function Test-Deadline {
    $used = ($Journal.before + $Watch.Elapsed.TotalSeconds) / 60
    if ($used -gt $Plan.limits.minutes) { throw "the plan has $($Plan.limits.minutes) minutes, $([int] $used) have passed" }
}

# The restart that the plan has asked for. Returns the exit code.
function Restart-Windows {
    if ($Source -eq 'cloudbase') { return 1003 }
    # 1115 and 1190: another one is on its way.
    Invoke-Program @('shutdown.exe', '/r', '/t', '5') $env:SystemRoot 60 @(0, 1115, 1190)
    return 0
}

# Where the state was lost: only cleaning up is left once the file is there that says that all is done, which a plan writes before it cleans up.
# If another plan was finished before, the file may be that one's.
function Test-AllDone($Items) {
    if ($Items.Count -lt 2 -or $Items[-1].kind -ne 'absent' -or $Items[-2].kind -ne 'file') { return $false }
    if ([System.IO.File]::Exists([System.IO.Path]::Combine($StateDirectory, 'finished'))) { return $false }
    return Test-PlanItem 'Test-FileItem' $Items[-2]
}

# The whole plan. Returns the exit code.
function Invoke-Plan {
    if (Test-Finished $State.digest) {
        Write-Log 'the plan is finished already'
        return 0
    }
    # Several runners may be started at one start of Windows. The first one settles how it ends; the others neither count nor tell it again.
    if ($State.outcome -ne '') { Write-Log "another runner of this start of Windows has ended with: $($State.outcome)" }
    if ($State.outcome -eq 'failed') { return 0 }
    if ($State.outcome -eq 'restart') { return Restart-Windows }
    if ($Plan.planVersion -gt $PlanVersion) {
        $State.outcome = 'failed'
        Send-Report 'plan' 'failed' 12 "expected a plan of version $PlanVersion or older, found $($Plan.planVersion)"
        return 0
    }
    $items = @($Plan.items)
    $last = $items[$items.Count - 1]
    if ($Journal.anew -and (Test-AllDone $items)) { $State.cleaning = $true }
    foreach ($item in $items) {
        # Items before it may need secrets that are gone.
        if ($State.cleaning -and $item.id -cne $last.id) { continue }
        if ($item.id -ceq $last.id -and $item.kind -eq 'absent') { $State.cleaning = $true }
        $outcome = ''
        try {
            if ($Kinds -notcontains $item.kind) { throw "this runner does not know the kind '$($item.kind)'" }
            $outcome = Invoke-PlanItem $item
        } catch {
            Write-Log "$($item.id): $($_.Exception.Message) $($_.ScriptStackTrace)"
            if (Get-Field $item 'optional' $false) {
                Send-Report $item.id 'warned' $item.code $_.Exception.Message
                continue
            }
            $State.outcome = 'failed'
            Send-Report $item.id 'failed' $item.code $_.Exception.Message
            Send-Report 'plan' 'failed' $item.code "$($item.id): $($_.Exception.Message)"
            return 0
        }
        if ($outcome -eq 'reboot') {
            $State.reboots = [int] $State.reboots + 1
            $State.outcome = 'restart'
            if (-not (Test-OwnRestartWanted)) { $State.theirs = $true }
            Save-State
            Send-Report $item.id 'reboot' 0 "restart $($State.reboots) of $($Plan.limits.reboots)"
            return Restart-Windows
        }
    }
    # Reported first: a kill in between makes the next start report it again, rather than never.
    Send-Report 'plan' 'finished' 0 "$($items.Count) items are true"
    try {
        Save-Finished
    } catch {
        # The next start finds all items true.
        $Journal.lost = $true
        Write-Log "the end of the plan cannot be noted: $($_.Exception.Message)"
    }
    return 0
}
