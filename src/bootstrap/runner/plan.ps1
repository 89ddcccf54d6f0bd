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
    if (Test-PlanItem $test $Item) {
        if ($null -eq $marker -or $marker.digest -cne $digest) {
            $acted = [int64] 0
            if ($null -ne $marker) { $acted = [int64] $marker.acted }
            Set-Marker $Item.id $digest $acted
            Send-Report $Item.id 'done' 0 'was true already'
        }
        return 'done'
    }
    if ($Item.kind -eq 'reboot') {
        if ($State.reboots -ge $Plan.limits.reboots) {
            throw "expected at most $($Plan.limits.reboots) restarts, and one more is asked for"
        }
        return 'reboot'
    }
    $problem = ''
    for ($attempt = 1; $attempt -le $Item.attempts; $attempt++) {
        Test-Deadline
        Send-Report $Item.id 'started' 0 "attempt $attempt of $($Item.attempts)"
        $problem = 'it is still not true after it was done'
        # Data that are wrong stay wrong: that is no reason to try again.
        try { $null = & $act $Item } catch [System.IO.InvalidDataException] { throw } catch { $problem = $_.Exception.Message }
        if (Test-PlanItem $test $Item) {
            Set-Marker $Item.id $digest ([System.DateTime]::UtcNow.Ticks)
            Send-Report $Item.id 'done' 0 "attempt $attempt"
            return 'done'
        }
        if ($attempt -lt $Item.attempts) {
            Send-Report $Item.id 'retry' $Item.code $problem
            Undo-PlanItem $Item
            Start-Sleep -Seconds ([System.Math]::Min(60, 5 * [System.Math]::Pow(2, $attempt - 1)))
        }
    }
    throw $problem
}

# A test that cannot be made says that the item is not true; what is done about it then says why.
function Test-PlanItem([string] $Test, $Item) {
    try { return [bool] (& $Test $Item) } catch { Write-Log "$($Item.id): $($_.Exception.Message)" }
    return $false
}

# What an item left behind is taken away before the next attempt; that this fails does not matter.
function Undo-PlanItem($Item) {
    $undo = @(Get-Field $Item 'undo' @())
    if ($undo.Count -eq 0) { return }
    try { Invoke-Program $undo $Item.directory $Item.seconds } catch { Write-Log "undo of $($Item.id): $($_.Exception.Message)" }
}

# Nothing is started after the plan's time.
function Test-Deadline {
    $used = ([System.DateTime]::UtcNow.Ticks - [int64] $State.started) / [System.TimeSpan]::TicksPerMinute
    if ($used -gt $Plan.limits.minutes) { throw "the plan has $($Plan.limits.minutes) minutes, $([int] $used) have passed since its first start" }
}

# The whole plan. Returns the exit code.
function Invoke-Plan {
    if (Test-Finished $State.digest) {
        Write-Log 'the plan is finished already'
        return 0
    }
    foreach ($item in $Plan.items) {
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
            Send-Report $item.id 'failed' $item.code $_.Exception.Message
            Send-Report 'plan' 'failed' $item.code "$($item.id): $($_.Exception.Message)"
            return 0
        }
        if ($outcome -eq 'reboot') {
            $State.reboots = [int] $State.reboots + 1
            Save-State
            Send-Report $item.id 'reboot' 0 "restart $($State.reboots) of $($Plan.limits.reboots)"
            if ($Source -eq 'cloudbase') { return 1003 }
            Invoke-Program @('shutdown.exe', '/r', '/t', '5') $env:SystemRoot 60
            return 0
        }
    }
    try {
        Save-Finished
    } catch {
        # The next start finds all items true.
        $Journal.lost = $true
        Write-Log "the end of the plan cannot be noted: $($_.Exception.Message)"
    }
    Send-Report 'plan' 'finished' 0 "$(@($Plan.items).Count) items are true"
    return 0
}
