# Stand-ins for commands that PowerShell under Wine lacks, or that would change the host. Dot-sourced before a script of ours runs.
# Global functions come before cmdlets; an alias comes before a function, so an alias replaces a function of the runner itself.
# What is made is kept as JSON below C:\stand-in\kept, where the tests read it.
$global:StandInKept = 'C:\stand-in\kept'
[void] [System.IO.Directory]::CreateDirectory($StandInKept)

function global:Read-Kept([string] $Name) {
    $path = "$StandInKept\$Name.json"
    $all = @{}
    if ([System.IO.File]::Exists($path)) {
        foreach ($property in (ConvertFrom-Json ([System.IO.File]::ReadAllText($path))).PSObject.Properties) { $all[$property.Name] = $property.Value }
    }
    return $all
}

function global:Save-Kept([string] $Name, $All) {
    $path = "$StandInKept\$Name.json"
    [System.IO.File]::WriteAllText("$path.new", (ConvertTo-Json $All -Depth 6))
    [System.IO.File]::Move("$path.new", $path, $true)
}

function global:Write-Call([string] $Text) {
    try { [System.IO.File]::AppendAllText('C:\stand-in\calls.log', "$Text`n") } catch { $null = $_ }
}

# Wine writes the host's domain into the registry whenever it starts.
if ([System.IO.File]::Exists('C:\stand-in\domain')) {
    Set-ItemProperty 'HKLM:\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters' Domain ([System.IO.File]::ReadAllText('C:\stand-in\domain'))
}

# --- CIM
function global:Get-CimInstance {
    param($ClassName, $Filter)
    switch ($ClassName) {
        'Win32_Process' { return [pscustomobject] @{ CreationDate = [datetime] '2026-01-01'; CommandLine = 'C:\Windows\System32\svchost.exe' } }
        'Win32_UserAccount' { return [pscustomobject] @{ SID = 'S-1-5-21-1-2-3-500' } }
        'Win32_ComputerSystem' {
            $domain = 'WORKGROUP'
            if ([System.IO.File]::Exists('C:\stand-in\domain')) { $domain = [System.IO.File]::ReadAllText('C:\stand-in\domain') }
            return [pscustomobject] @{ PartOfDomain = $domain -ne 'WORKGROUP'; Domain = $domain }
        }
        'Win32_Service' {
            $name = $Filter -replace "^Name='(.*)'$", '$1'
            $number = 0
            if ([System.IO.File]::Exists("C:\stand-in\pids\$name")) { $number = [int] [System.IO.File]::ReadAllText("C:\stand-in\pids\$name") }
            return [pscustomobject] @{ Name = $name; ProcessId = $number; ExitCode = 0; ServiceSpecificExitCode = 0 }
        }
    }
    throw "no stand-in for the class $ClassName"
}

function global:Invoke-CimMethod {
    param($InputObject, $MethodName, $Arguments)
    Write-Call "Change $($InputObject.Name)"
    $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$($InputObject.Name)"
    Set-ItemProperty $key ImagePath $Arguments.PathName
    Set-ItemProperty $key Start ([int] @{ Automatic = 2; Manual = 3 }[$Arguments.StartMode]) -Type DWord
    if ($Arguments.ContainsKey('ServiceDependencies')) {
        $null = New-ItemProperty $key -Name DependOnService -PropertyType MultiString -Value $Arguments.ServiceDependencies -Force
    }
    return [pscustomobject] @{ ReturnValue = 0 }
}

# --- scheduled tasks: the tests start those that run at a start of the machine
function global:Get-ScheduledTask {
    [CmdletBinding()] param($TaskName)
    $task = (Read-Kept tasks)[$TaskName]
    if ($null -eq $task) { Write-Error "there is no task $TaskName"; return }
    $action = [pscustomobject] @{ Execute = $task.Execute; Arguments = $task.Arguments }
    return [pscustomobject] @{ TaskName = $TaskName; Description = $task.Description; Actions = @($action) }
}

function global:New-ScheduledTaskTrigger {
    param([switch] $Once, $At, [timespan] $RepetitionInterval, [switch] $AtStartup)
    return @{ AtStartup = [bool] $AtStartup; Every = $RepetitionInterval }
}

function global:New-ScheduledTaskAction {
    param($Execute, $Argument)
    return @{ Execute = $Execute; Argument = $Argument }
}

function global:New-ScheduledTaskPrincipal {
    param($UserId, [ValidateSet('ServiceAccount')] $LogonType, [ValidateSet('Highest')] $RunLevel)
    return @{ UserId = $UserId }
}

function global:New-ScheduledTaskSettingsSet {
    param([int] $RestartCount, [timespan] $RestartInterval, [timespan] $ExecutionTimeLimit, [int] $Priority, [switch] $AllowStartIfOnBatteries, [switch] $DontStopIfGoingOnBatteries, [switch] $StartWhenAvailable, $MultipleInstances)
    return @{ ExecutionTimeLimit = "$ExecutionTimeLimit" }
}

function global:Register-ScheduledTask {
    param($TaskName, [switch] $Force, $Trigger, $Description, $Action, $Principal, $Settings)
    Write-Call "Register-ScheduledTask $TaskName"
    $tasks = Read-Kept tasks
    $tasks[$TaskName] = @{ Description = $Description; Execute = $Action.Execute; Arguments = $Action.Argument; AtStartup = $Trigger.AtStartup }
    Save-Kept tasks $tasks
    return $tasks[$TaskName]
}

function global:Unregister-ScheduledTask {
    [CmdletBinding(SupportsShouldProcess)] param($TaskName)
    Write-Call "Unregister-ScheduledTask $TaskName"
    $tasks = Read-Kept tasks
    $tasks.Remove($TaskName)
    Save-Kept tasks $tasks
}

function global:Start-ScheduledTask {
    param($TaskName)
    Write-Call "Start-ScheduledTask $TaskName"
}

# --- features: pending until the next start of the machine
function global:Get-WindowsOptionalFeature {
    param([switch] $Online, $FeatureName)
    $path = "C:\stand-in\features\$FeatureName"
    if (-not [System.IO.File]::Exists($path)) { return $null }
    return [pscustomobject] @{ FeatureName = $FeatureName; State = [System.IO.File]::ReadAllText($path) }
}

# --- firewall
function global:Get-NetFirewallRule {
    [CmdletBinding()] param($Name)
    $rule = (Read-Kept firewall)[$Name]
    if ($null -eq $rule) { Write-Error "there is no rule $Name"; return }
    return [pscustomobject] @{
        Name = $Name; Enabled = 'True'; Direction = $rule.Direction; Action = $rule.Action; Profile = 'Any'; Description = $rule.Description
    }
}

function global:Remove-NetFirewallRule {
    [CmdletBinding()] param($Name)
    $rules = Read-Kept firewall
    if (-not $rules.ContainsKey($Name)) { Write-Error "there is no rule $Name"; return }
    $rules.Remove($Name)
    Save-Kept firewall $rules
}

function global:New-NetFirewallRule {
    param(
        $Name, $DisplayName, $Group, $Description, [ValidateSet('Inbound', 'Outbound')] $Direction, [ValidateSet('Allow', 'Block')] $Action,
        $Profile, $Protocol, [string[]] $LocalPort, [string[]] $RemotePort, [string[]] $RemoteAddress
    )
    Write-Call "New-NetFirewallRule $Name"
    $rules = Read-Kept firewall
    if ($rules.ContainsKey($Name)) { throw 'Cannot create a file when that file already exists.' }
    $text = (Get-Culture).TextInfo
    $rules[$Name] = @{
        Direction = $text.ToTitleCase($Direction); Action = $text.ToTitleCase($Action); Description = $Description
        Protocol = $Protocol; LocalPort = $LocalPort; RemotePort = $RemotePort; RemoteAddress = $RemoteAddress
    }
    Save-Kept firewall $rules
    return $rules[$Name]
}

function global:Get-NetFirewallProfile {
    $enabled = [string] [System.IO.File]::Exists('C:\stand-in\firewall-on')
    return 1..3 | ForEach-Object { [pscustomobject] @{ Enabled = $enabled } }
}

function global:Set-NetFirewallProfile {
    param([switch] $All, $Enabled)
    [System.IO.File]::WriteAllText('C:\stand-in\firewall-on', '1')
}

# --- Defender, disks, accounts, names, networks
function global:Get-MpPreference {
    $kept = Read-Kept defender
    return [pscustomobject] @{ ExclusionPath = $kept['paths']; ExclusionProcess = $kept['processes'] }
}

function global:Add-MpPreference {
    param($ExclusionPath, $ExclusionProcess)
    Save-Kept defender @{ paths = @($ExclusionPath); processes = @($ExclusionProcess) }
}

function global:Get-PartitionSupportedSize {
    param($DriveLetter)
    return @{ SizeMax = 100GB }
}

function global:Get-Partition {
    param($DriveLetter)
    return @{ Size = 100GB }
}

function global:Resize-Partition {
    param($DriveLetter, $Size)
    Write-Call 'Resize-Partition'
}

function global:Rename-Computer {
    param($NewName, [switch] $Force)
    Write-Call "Rename-Computer $NewName"
    [System.IO.File]::WriteAllText('C:\stand-in\computer-name', $NewName)
}

function global:Disable-LocalUser {
    param($SID)
    Write-Call "Disable-LocalUser $SID"
}

function global:Get-NetRoute {
    param($AddressFamily, $PolicyStore)
    return @([pscustomobject] @{ DestinationPrefix = '0.0.0.0/0'; NextHop = '192.168.1.1' })
}

function global:Get-ComputeProcess {
    if (-not [System.IO.File]::Exists('C:\stand-in\compute-processes')) { return }
    [System.IO.File]::ReadAllLines('C:\stand-in\compute-processes') | ForEach-Object { [pscustomobject] @{ Id = $_ } }
}

function global:Get-HnsEndpoint {
    if (-not [System.IO.File]::Exists('C:\stand-in\endpoints')) { return }
    [System.IO.File]::ReadAllLines('C:\stand-in\endpoints') | ForEach-Object { [pscustomobject] @{ Id = "id-$_"; Name = $_ } }
}

function global:Remove-HnsEndpoint {
    param([Parameter(ValueFromPipeline)] $Endpoint)
    process { Write-Call "Remove-HnsEndpoint $($Endpoint.Name)" }
}

# Wine starts nothing for `& program.exe`.
function global:shutdown.exe {
    Write-Call "shutdown $args"
    [System.IO.File]::WriteAllText('C:\stand-in\shutdown', "$args")
}

function global:route.exe {
    Write-Call "route $args"
    ' OK!'
}

# --- access control: Wine forgets descriptors, and PowerShell 7 has other methods. An alias, because the runner defines a function.
function global:Use-KeptAccess([string] $Path, [bool] $Directory, $Security) {
    if (-not (Test-Path -LiteralPath $Path)) { throw "$Path does not exist" }
    $kept = 'C:\stand-in\access\' + ($Path.ToLowerInvariant() -replace '[\\/:]', '_')
    [void] [System.IO.Directory]::CreateDirectory('C:\stand-in\access')
    if ($null -ne $Security) {
        # Windows lets two runners set the access of a directory at the same time.
        for ($attempt = 1; $true; $attempt++) {
            try { return [System.IO.File]::WriteAllText($kept, $Security.GetSecurityDescriptorSddlForm('Access')) } catch {
                if ($attempt -ge 50) { throw }
                Start-Sleep -Milliseconds 20
            }
        }
    }
    $found = New-Object System.Security.AccessControl.FileSecurity
    if ($Directory) { $found = New-Object System.Security.AccessControl.DirectorySecurity }
    if ([System.IO.File]::Exists($kept)) { $found.SetSecurityDescriptorSddlForm([System.IO.File]::ReadAllText($kept)) }
    return $found
}
Set-Alias -Scope Global -Name Invoke-AccessControl -Value Use-KeptAccess
function global:Save-DirectoryAccess([string] $Path, $Security) {
    $null = Use-KeptAccess $Path $true $Security
}
Set-Alias -Scope Global -Name Set-DirectorySecurity -Value Save-DirectoryAccess

# Pipes cannot be listed under Wine.
function global:Find-KeptPipe([string] $Name) {
    if ($Name -ne 'containerd-containerd' -or [System.IO.File]::Exists('C:\stand-in\pids\containerd')) { return "\\.\pipe\$Name" }
}
Set-Alias -Scope Global -Name Get-Pipe -Value Find-KeptPipe

# The disk of a machine under Wine is the host's.
function global:Get-KeptFreeSpace([string] $Drive) {
    return 50
}
Set-Alias -Scope Global -Name Get-FreeGibibytes -Value Get-KeptFreeSpace

# Get-Service asks for more than Wine's service manager knows.
[void] [System.Reflection.Assembly]::Load('System.ServiceProcess.ServiceController')
function global:Get-Service {
    [CmdletBinding()] param($Name)
    $found = @([System.ServiceProcess.ServiceController]::GetServices() | Where-Object { $_.ServiceName -eq $Name })
    if ($found.Count -eq 0) { Write-Error "there is no service $Name"; return }
    return $found[0]
}
