# The kinds of items: Test-<kind>Item says whether it is true and changes nothing, Set-<kind>Item makes it true.

# --- directory: paths, access
function Test-DirectoryItem($Item) {
    foreach ($path in @($Item.paths)) {
        if (-not [System.IO.Directory]::Exists($path) -or -not (Test-Access $path $Item.access $true)) { return $false }
    }
    return $true
}

function Set-DirectoryItem($Item) {
    foreach ($path in @($Item.paths)) {
        [void] [System.IO.Directory]::CreateDirectory($path)
        Set-Access $path $Item.access $true
    }
}

# --- file: path, source in the payload, sha256, access
function Test-FileItem($Item) {
    if (-not [System.IO.File]::Exists($Item.path)) { return $false }
    return (Get-FileDigest $Item.path) -ceq $Item.sha256 -and (Test-Access $Item.path $Item.access $false)
}

function Set-FileItem($Item) {
    $source = Get-PayloadPath $Item.source
    if ((Get-FileDigest $source) -cne $Item.sha256) { throw "expected $($Item.source) with digest $($Item.sha256), found another" }
    [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($Item.path))
    # Next to its target, with its access before it has content that others may not read.
    $temporary = "$($Item.path).new"
    [System.IO.File]::WriteAllText($temporary, '')
    Set-Access $temporary $Item.access $false
    Write-Through $temporary ([System.IO.File]::ReadAllBytes($source))
    Move-Over $temporary $Item.path
    # What replaces a file takes over its access.
    Set-Access $Item.path $Item.access $false
}

# --- registry: key, name, data {string | expandString | dword | multiString}, restart
function Get-RegistryData($Item) {
    foreach ($type in @('string', 'expandString', 'multiString')) {
        $value = Get-Field $Item.data $type $null
        if ($null -ne $value -and $type -eq 'multiString') { return @{ Type = $type; Value = [string[]] @($value) } }
        if ($null -ne $value) { return @{ Type = $type; Value = $value } }
    }
    # The registry knows no sign.
    return @{ Type = 'dword'; Value = [System.BitConverter]::ToInt32([System.BitConverter]::GetBytes([uint32] $Item.data.dword), 0) }
}

function Test-RegistryItem($Item) {
    $wanted = Get-RegistryData $Item
    $found = Get-RegistryValue $Item.key $Item.name
    if ($null -eq $found) { return $false }
    return (Get-Item -LiteralPath $Item.key).GetValueKind($Item.name).ToString() -ieq $wanted.Type -and
        [string]::Join("`n", @($found)) -ceq [string]::Join("`n", @($wanted.Value))
}

function Set-RegistryItem($Item) {
    $wanted = Get-RegistryData $Item
    $name = $Item.name
    if ($name -eq '') { $name = '(default)' }
    if (Get-Field $Item 'restart' $false) { Set-RestartWanted }
    if (-not (Test-Path -LiteralPath $Item.key)) { $null = New-Item -Path $Item.key -Force }
    $null = New-ItemProperty -LiteralPath $Item.key -Name $name -PropertyType $wanted.Type -Value $wanted.Value -Force
}

# --- serviceEnvironment: service, variables {plain | secret {source, sha256}}
function Test-ServiceEnvironmentItem($Item) {
    $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$($Item.service)"
    $found = [string]::Join("`n", @(Get-RegistryValue $key 'Environment'))
    $secret = Get-Field $Item.variables 'secret' $null
    if ($null -eq $secret) { return $found -ceq [string]::Join("`n", @($Item.variables.plain)) }
    $access = (Get-Item -LiteralPath $key).GetAccessControl([System.Security.AccessControl.AccessControlSections]::Access)
    return (Get-TextDigest $found) -ceq $secret.sha256 -and (Get-Rules $access) -ceq (Get-Rules (New-SecretKeySecurity))
}

# Full control of a registry key for SYSTEM and administrators.
function New-SecretKeySecurity {
    $security = New-Object System.Security.AccessControl.RegistrySecurity
    $security.SetSecurityDescriptorSddlForm('D:P(A;CI;KA;;;SY)(A;CI;KA;;;BA)', [System.Security.AccessControl.AccessControlSections]::Access)
    return $security
}

function Set-ServiceEnvironmentItem($Item) {
    $path = "SYSTEM\CurrentControlSet\Services\$($Item.service)"
    $lines = @(Get-Field $Item.variables 'plain' @())
    $secret = Get-Field $Item.variables 'secret' $null
    if ($null -ne $secret) {
        $lines = [System.IO.File]::ReadAllText((Get-PayloadPath $secret.source)).Split("`n")
        Set-KeySecurity $path 'ChangePermissions' (New-SecretKeySecurity)
    }
    Set-TextList $path 'Environment' $lines
}

# --- environment: name, value (of the machine)
function Test-EnvironmentItem($Item) {
    return [System.Environment]::GetEnvironmentVariable($Item.name, 'Machine') -ceq $Item.value
}

function Set-EnvironmentItem($Item) {
    [System.Environment]::SetEnvironmentVariable($Item.name, $Item.value, 'Machine')
}

# --- feature: names, state. One that waits for a restart counts; the item of kind reboot settles it.
# $null: the image does not know it.
function Get-Feature([string] $Name) {
    try {
        return Get-WindowsOptionalFeature -Online -FeatureName $Name
    } catch {
        # CBS_E_UNKNOWN_UPDATE: there is no feature of that name.
        if ($_.Exception.GetBaseException().HResult -ne 0x800f080c) { throw }
        return $null
    }
}

function Test-FeatureItem($Item) {
    $good = @{ enabled = @('Enabled', 'EnablePending'); disabled = @('Disabled', 'DisablePending', 'DisabledWithPayloadRemoved') }[$Item.state]
    foreach ($name in @($Item.names)) {
        $feature = Get-Feature $name
        if ($null -eq $feature) {
            if ($Item.state -eq 'enabled') { throw "Windows does not know the feature $name" }
        } elseif ($good -notcontains [string] $feature.State) {
            return $false
        }
    }
    return $true
}

function Set-FeatureItem($Item) {
    foreach ($name in @($Item.names)) {
        $options = @('/Disable-Feature')
        if ($Item.state -eq 'enabled') { $options = @('/Enable-Feature', '/All') }
        Invoke-Program (@('dism.exe', '/Online') + $options + @("/FeatureName:$name", '/NoRestart', '/Quiet')) $env:SystemRoot $Item.seconds @(0, 3010)
        if ($Program.code -eq 3010) { Set-RestartWanted }
    }
}

# --- firewall: name, direction, action, protocol, ports, remote; for every profile. Windows writes ports and networks in its own
# way, so the rule carries the digest of what was asked for.
function Test-FirewallItem($Item) {
    $rule = Get-NetFirewallRule -Name $Item.name -ErrorAction SilentlyContinue
    if ($null -eq $rule) { return $false }
    return [string] $rule.Enabled -eq 'True' -and [string] $rule.Direction -eq $Item.direction -and [string] $rule.Action -eq $Item.action -and
        [string] $rule.Profile -eq 'Any' -and [string] $rule.Description -ceq (Get-ItemDigest $Item)
}

function Set-FirewallItem($Item) {
    Remove-NetFirewallRule -Name $Item.name -ErrorAction SilentlyContinue
    $rule = @{
        Name = $Item.name; DisplayName = $Item.name; Group = 'capw'; Description = Get-ItemDigest $Item
        Direction = $Item.direction; Action = $Item.action; Profile = 'Any'; Protocol = $Item.protocol
    }
    $ports = [string[]] @(Get-Field $Item 'ports' @())
    $remote = [string[]] @(Get-Field $Item 'remote' @())
    if ($ports.Count -gt 0) { $rule[@{ inbound = 'LocalPort'; outbound = 'RemotePort' }[$Item.direction]] = $ports }
    if ($remote.Count -gt 0) { $rule.RemoteAddress = $remote }
    $null = New-NetFirewallRule @rule
}

# --- service: name, commandLine, start, dependsOn (none: as it is), resetSeconds, restartDelays, address {flag, to}
function Test-ServiceItem($Item) {
    $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$($Item.name)"
    if ($null -eq (Get-Service -Name $Item.name -ErrorAction SilentlyContinue)) { return $false }
    $start = @{ auto = 2; demand = 3 }[$Item.start]
    $depends = [string]::Join(' ', @(Get-Field $Item 'dependsOn' @()))
    return (Get-RegistryValue $key 'ImagePath') -ceq (Get-CommandLine $Item) -and (Get-RegistryValue $key 'Start') -eq $start -and
        ($depends -eq '' -or [string]::Join(' ', @(Get-RegistryValue $key 'DependOnService')) -ieq $depends) -and
        (Get-RegistryValue $key 'FailureActionsOnNonCrashFailures') -eq 1 -and
        (Get-FailureActions (Get-RegistryValue $key 'FailureActions')) -ceq (Get-WantedActions $Item)
}

# With several networks a program cannot know which of its addresses others reach: it is told the one that leads to where it has to go.
function Get-CommandLine($Item) {
    $wanted = Get-Field $Item 'address' $null
    if ($null -eq $wanted -or @(Get-OwnNetwork).Count -lt 2) { return $Item.commandLine }
    return "$($Item.commandLine) $($wanted.flag)$(Get-SourceAddress $wanted.to)"
}

# The registry holds five numbers (reset seconds, -, -, count, -) and then pairs of kind (1: restart) and milliseconds.
function Get-FailureActions([byte[]] $Bytes) {
    if ($null -eq $Bytes -or $Bytes.Length -lt 20 -or $Bytes.Length % 4 -ne 0) { return '' }
    $numbers = @(for ($at = 0; $at -lt $Bytes.Length; $at += 4) { [System.BitConverter]::ToUInt32($Bytes, $at) })
    $actions = @($numbers | Select-Object -Skip 5)
    return "$($numbers[0]): $([string]::Join(' ', $actions))"
}

function Get-WantedActions($Item) {
    $actions = @($Item.restartDelays | ForEach-Object { "1 $_" })
    return "$($Item.resetSeconds): $([string]::Join(' ', $actions))"
}

function Set-ServiceItem($Item) {
    $depends = [string[]] @(Get-Field $Item 'dependsOn' @())
    $mode = @{ auto = 'Automatic'; demand = 'Manual' }[$Item.start]
    $line = Get-CommandLine $Item
    if ($null -eq (Get-Service -Name $Item.name -ErrorAction SilentlyContinue)) {
        $null = New-Service -Name $Item.name -BinaryPathName $line -StartupType $mode
    }
    # Not sc.exe: its own quoting of quotes in a command line is a trap.
    $service = Get-CimInstance -ClassName Win32_Service -Filter "Name='$($Item.name)'"
    $arguments = @{ PathName = $line; StartMode = $mode }
    if ($depends.Count -gt 0) { $arguments.ServiceDependencies = $depends }
    $result = Invoke-CimMethod -InputObject $service -MethodName Change -Arguments $arguments
    if ($result.ReturnValue -ne 0) { throw "the service manager answers $($result.ReturnValue) to the change of $($Item.name)" }
    $actions = [string]::Join('/', @($Item.restartDelays | ForEach-Object { "restart/$_" }))
    Invoke-Program @('sc.exe', 'failure', $Item.name, 'reset=', [string] $Item.resetSeconds, 'actions=', $actions) $env:SystemRoot $Item.seconds
    Invoke-Program @('sc.exe', 'failureflag', $Item.name, '1') $env:SystemRoot $Item.seconds
}

# --- running: name, after (items whose last change it must have seen)

# The process of a service: its number, and when it was made, which no correction of the clock changes. '': none that can be seen.
function Get-ServiceProcess([string] $Name) {
    try {
        $number = (Get-CimInstance -ClassName Win32_Service -Filter "Name='$Name'").ProcessId
        return "$number $((Get-Process -Id $number).StartTime.ToUniversalTime().Ticks)"
    } catch { return '' }
}

function Test-RunningItem($Item) {
    $service = Get-Service -Name $Item.name -ErrorAction SilentlyContinue
    if ($null -eq $service -or [string] $service.Status -ne 'Running') { return $false }
    $process = Get-ServiceProcess $Item.name
    foreach ($id in @(Get-Field $Item 'after' @())) {
        $marker = Get-Marker $id
        if ($process -ne '' -and $null -ne $marker -and (Get-Field $marker.processes $Item.name '') -ceq $process) { return $false }
    }
    return $true
}

function Set-RunningItem($Item) {
    $service = Get-Service -Name $Item.name -ErrorAction SilentlyContinue
    if ($null -eq $service) { throw "there is no service $($Item.name)" }
    if ([string] $service.Status -ne 'Stopped') {
        if ([string] $service.Status -ne 'StopPending') { $service.Stop() }
        $service.WaitForStatus('Stopped', [System.TimeSpan]::FromSeconds($Item.seconds))
    }
    $waited = [System.Diagnostics.Stopwatch]::StartNew()
    try {
        $service.Start()
    } catch {
        throw "$($Item.name) does not start: $($_.Exception.GetBaseException().Message) $(Get-ServiceEnd $Item.name)"
    }
    while ($true) {
        $service.Refresh()
        if ([string] $service.Status -eq 'Running') { return }
        if ([string] $service.Status -eq 'Stopped') { throw "$($Item.name) ended while it started: $(Get-ServiceEnd $Item.name)" }
        if ($waited.Elapsed.TotalSeconds -gt $Item.seconds) {
            throw "$($Item.name) is $($service.Status) after $($Item.seconds) seconds: $(Get-ServiceEnd $Item.name)"
        }
        Start-Sleep -Milliseconds 500
    }
}

# How a service ended: its exit code, and the last line of the log that its command line names.
function Get-ServiceEnd([string] $Name) {
    $service = Get-CimInstance -ClassName Win32_Service -Filter "Name='$Name'"
    $code = Get-Field $service 'ExitCode' '?'
    # ERROR_SERVICE_SPECIFIC_ERROR: the code is the service's own.
    if ($code -eq 1066) { $code = Get-Field $service 'ServiceSpecificExitCode' '?' }
    $line = [string] (Get-RegistryValue "HKLM:\SYSTEM\CurrentControlSet\Services\$Name" 'ImagePath')
    $log = [System.Text.RegularExpressions.Regex]::Match($line, '[A-Za-z]:[\\/][^":|<>]*?\.log\b')
    $said = ''
    if ($log.Success) { $said = Get-LastWord (Read-End $log.Value) }
    return "exit code $code, $said"
}

# --- task: name, argv, everyMinutes (none: at every start), as SYSTEM
function Test-TaskItem($Item) {
    $task = Get-ScheduledTask -TaskName $Item.name -ErrorAction SilentlyContinue
    if ($null -eq $task) { return $false }
    $action = @($task.Actions)[0]
    $argv = @($Item.argv)
    # Windows keeps the pause as text (ISO 8601), and may write it in another way: the definition says what was asked for.
    if ([string] $task.Description -cne (Get-ItemDigest $Item)) { return $false }
    return $action.Execute -ceq $argv[0] -and [string] $action.Arguments -ceq (ConvertTo-CommandLine $argv[1..($argv.Count - 1)])
}

function Set-TaskItem($Item) {
    $argv = @($Item.argv)
    $minutes = Get-Field $Item 'everyMinutes' 0
    # What runs at a start has limits of its own, which add up to more than one that could be set here. None is zero.
    $limit = [System.TimeSpan]::Zero
    $priority = 4
    if ($minutes -gt 0) {
        # A run that hangs keeps later ones from starting.
        $limit = New-TimeSpan -Minutes $minutes
        $priority = 7
        $trigger = New-ScheduledTaskTrigger -Once -At ([System.DateTime]::Now) -RepetitionInterval (New-TimeSpan -Minutes $minutes)
    } else {
        $trigger = New-ScheduledTaskTrigger -AtStartup
    }
    $definition = @{
        TaskName = $Item.name; Force = $true; Trigger = $trigger; Description = Get-ItemDigest $Item
        Action = New-ScheduledTaskAction -Execute $argv[0] -Argument (ConvertTo-CommandLine $argv[1..($argv.Count - 1)])
        Principal = New-ScheduledTaskPrincipal -UserId 'S-1-5-18' -LogonType ServiceAccount -RunLevel Highest
        Settings = New-ScheduledTaskSettingsSet -RestartCount 3 -RestartInterval (New-TimeSpan -Minutes 1) -ExecutionTimeLimit $limit -Priority $priority
    }
    $null = Register-ScheduledTask @definition
}

# --- command: argv, raw, directory, check, exitCodes {success, restart}. Without a check it is run once: a note says so.
function Test-CommandItem($Item) {
    $check = Get-Field $Item 'check' $null
    if ($null -ne $check) { return Test-Check $check }
    $note = [System.IO.Path]::Combine($MarkerDirectory, "$($Item.id).ran")
    return [System.IO.File]::Exists($note) -and (Read-Text $note) -ceq (Get-ItemDigest $Item)
}

function Set-CommandItem($Item) {
    $success = @(0)
    $restart = @()
    $codes = Get-Field $Item 'exitCodes' $null
    if ($null -ne $codes) {
        $success = @($codes.success)
        $restart = @(Get-Field $codes 'restart' @())
    }
    Invoke-Program @($Item.argv) $Item.directory $Item.seconds ($success + $restart) (Get-Field $Item 'raw' '')
    if ($restart -contains $Program.code) { Set-RestartWanted }
    if ($null -eq (Get-Field $Item 'check' $null)) {
        Write-WholeText ([System.IO.Path]::Combine($MarkerDirectory, "$($Item.id).ran")) (Get-ItemDigest $Item)
    }
}

# --- script: the name of one in scripts.ps1, and its parameters
function Test-ScriptItem($Item) {
    return & "Test-$(Get-ScriptName $Item)Script" $Item
}

function Set-ScriptItem($Item) {
    $null = & "Set-$(Get-ScriptName $Item)Script" $Item
}

function Get-ScriptName($Item) {
    if ($Scripts -notcontains $Item.script) { throw "this runner does not know the script '$($Item.script)'" }
    return $Item.script
}

# --- wait: check
function Test-WaitItem($Item) {
    return Test-Check $Item.check
}

function Set-WaitItem($Item) {
    $waited = [System.Diagnostics.Stopwatch]::StartNew()
    while (-not (Test-Check $Item.check)) {
        if ($waited.Elapsed.TotalSeconds -gt $Item.seconds) { throw "$(Get-Finding $Item.check) within $($Item.seconds) seconds" }
        Start-Sleep -Seconds 1
    }
}

# --- reboot: when pending. The runner itself asks for the restart.
function Test-RebootItem($Item) {
    return -not (Test-RestartWanted)
}

# --- absent: paths, tasks
function Test-AbsentItem($Item) {
    foreach ($path in @($Item.paths)) {
        if (Test-Path -LiteralPath $path) { return $false }
    }
    foreach ($task in @(Get-Field $Item 'tasks' @())) {
        if ($null -ne (Get-ScheduledTask -TaskName $task -ErrorAction SilentlyContinue)) { return $false }
    }
    return $true
}

function Set-AbsentItem($Item) {
    foreach ($path in @($Item.paths)) {
        if (Test-Path -LiteralPath $path) { Remove-Item -LiteralPath $path -Recurse -Force }
    }
    # Tasks last: they are what goes on after a kill.
    foreach ($task in @(Get-Field $Item 'tasks' @())) {
        if ($null -ne (Get-ScheduledTask -TaskName $task -ErrorAction SilentlyContinue)) { Unregister-ScheduledTask -TaskName $task -Confirm:$false }
    }
}
