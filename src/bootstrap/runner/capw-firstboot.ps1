# Starts the bootstrap on Windows without cloudbase-init. -Install, which Windows Setup runs from the drive and builders of images
# run once, puts this script on the disk with a task for every start of the machine. The task waits until Setup is over, finds the
# drive with the label unattendCD and runs the loader in it; the last step of the bootstrap removes the task.
# It never restarts the machine while Setup runs: that would leave Windows unusable.
param(
    [switch] $Install, [switch] $Start, [switch] $DisableAdministrator,
    [string] $Root = 'C:\ProgramData\capw', [string] $Windows = $env:SystemRoot
)
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$copy = [System.IO.Path]::Combine($Root, 'capw-firstboot.ps1')
$task = 'capw-firstboot'
$attempts = 5
# By its full path: a program of that name in a directory of PATH would run as SYSTEM.
$powershell = [System.IO.Path]::Combine($Windows, 'System32', 'WindowsPowerShell', 'v1.0', 'powershell.exe')

function Write-FirstBootLog([string] $Text) {
    $log = [System.IO.Path]::Combine($Windows, 'Temp', 'capw-firstboot.log')
    try { [System.IO.File]::AppendAllText($log, "$([System.DateTime]::UtcNow.ToString('o')) $Text`r`n") } catch { $null = $_ }
}

# PowerShell 7 does not have this method: its tests replace this function.
function Set-DirectorySecurity([string] $Path, $Security) {
    [System.IO.Directory]::SetAccessControl($Path, $Security)
}

# The directory and what is made in it are for SYSTEM and administrators only.
function Protect-Directory([string] $Path) {
    $security = New-Object System.Security.AccessControl.DirectorySecurity
    $security.SetSecurityDescriptorSddlForm('D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)', [System.Security.AccessControl.AccessControlSections]::Access)
    Set-DirectorySecurity $Path $security
}

# Past Windows' cache: the power may go as soon as Setup is over, and a task whose script is full of zeros does nothing.
function Write-Copy {
    $bytes = [System.IO.File]::ReadAllBytes($PSCommandPath)
    $file = New-Object System.IO.FileStream($copy, [System.IO.FileMode]::Create, [System.IO.FileAccess]::Write, [System.IO.FileShare]::None, 4096, [System.IO.FileOptions]::WriteThrough)
    try {
        $file.Write($bytes, 0, $bytes.Length)
        $file.Flush($true)
    } finally {
        $file.Dispose()
    }
}

function Install-FirstBoot {
    [void] [System.IO.Directory]::CreateDirectory($Root)
    Protect-Directory $Root
    if ($PSCommandPath -ne $copy) { Write-Copy }

    $arguments = "-NoProfile -NonInteractive -ExecutionPolicy RemoteSigned -File $copy"
    if ($DisableAdministrator) { $arguments = "$arguments -DisableAdministrator" }
    # A second way to the same end, where the Task Scheduler does not work during Setup. It may not restart the machine: the task does.
    $setup = [System.IO.Path]::Combine($Windows, 'Setup', 'Scripts', 'SetupComplete.cmd')
    [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($setup))
    $line = "$powershell $arguments -Install -Start"
    if (-not [System.IO.File]::Exists($setup) -or -not [System.IO.File]::ReadAllText($setup).Contains($line)) {
        [System.IO.File]::AppendAllText($setup, "`r`n$line`r`n")
    }
    $definition = @{
        TaskName = $task; Force = $true
        Action = New-ScheduledTaskAction -Execute $powershell -Argument $arguments
        Trigger = New-ScheduledTaskTrigger -AtStartup
        Principal = New-ScheduledTaskPrincipal -UserId 'S-1-5-18' -LogonType ServiceAccount -RunLevel Highest
        Settings = New-ScheduledTaskSettingsSet -RestartCount 3 -RestartInterval (New-TimeSpan -Minutes 1) -ExecutionTimeLimit ([System.TimeSpan]::Zero) -Priority 4
    }
    $null = Register-ScheduledTask @definition
    if ($Start) { Start-ScheduledTask -TaskName $task }
}

# A value of the registry as text; '' if there is none.
function Get-KeyValue([string] $Key, [string] $Name) {
    $property = (Get-ItemProperty -LiteralPath $Key).PSObject.Properties[$Name]
    if ($null -eq $property) { return '' }
    return [string] $property.Value
}

function Wait-Setup {
    # Looks, two seconds apart: an hour.
    for ($look = 0; $look -lt 1800; $look++) {
        $state = Get-KeyValue 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State' 'ImageState'
        if ($state -eq 'IMAGE_STATE_COMPLETE' -and (Get-KeyValue 'HKLM:\SYSTEM\Setup' 'SystemSetupInProgress') -eq '0') { return }
        Start-Sleep -Seconds 2
    }
    throw 'Windows Setup is not over after an hour'
}

function Get-Drive {
    return [System.IO.DriveInfo]::GetDrives()
}

# The drive's root, or $null: an image that is being built has none.
function Find-Drive {
    for ($look = 0; $look -lt 60; $look++) {
        foreach ($drive in @(Get-Drive)) {
            if ($drive.IsReady -and $drive.VolumeLabel -eq 'unattendCD' -and [System.IO.File]::Exists("$($drive.Name)capw.ps1")) { return $drive.Name }
        }
        Start-Sleep -Seconds 2
    }
    return $null
}

# Windows answers 1115 and 1190 when it is on its way already.
function Restart-Windows {
    & ([System.IO.Path]::Combine($Windows, 'System32', 'shutdown.exe')) /r /t 5
    if (@(0, 1115, 1190) -notcontains $LASTEXITCODE) { throw "shutdown.exe ended with $LASTEXITCODE" }
}

# Setup has named the machine unless the image was not sysprepped. Returns whether a restart is on its way.
function Set-MachineName([string] $Drive) {
    $meta = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText("${Drive}meta-data"))
    $property = $meta.PSObject.Properties['local-hostname']
    if ($null -eq $property) { return $false }
    $names = 'HKLM:\SYSTEM\CurrentControlSet\Control\ComputerName'
    if ((Get-KeyValue "$names\ActiveComputerName" 'ComputerName') -ieq $property.Value) { return $false }
    # Another name than the active one comes with the next restart, which may have failed.
    if ((Get-KeyValue "$names\ComputerName" 'ComputerName') -ine $property.Value) {
        $asked = [System.IO.Path]::Combine($Root, 'name-asked')
        # Once is enough: the bootstrap says what is wrong with the name.
        if ([System.IO.File]::Exists($asked) -and [System.IO.File]::ReadAllText($asked) -ieq $property.Value) { return $false }
        $null = Rename-Computer -NewName $property.Value -Force
        [System.IO.File]::WriteAllText($asked, $property.Value)
    }
    Write-FirstBootLog "restart for the name $($property.Value)"
    $null = Restart-Windows
    return $true
}

# True: there is nothing left to do at this start.
function Start-Bootstrap {
    Wait-Setup
    $drive = Find-Drive
    if ($null -eq $drive) {
        Write-FirstBootLog 'there is no drive with the label unattendCD'
        return $true
    }
    if ($DisableAdministrator) {
        $account = @(Get-CimInstance -ClassName Win32_UserAccount -Filter 'LocalAccount=TRUE' | Where-Object { $_.SID -like 'S-1-5-21-*-500' })[0]
        Disable-LocalUser -SID $account.SID
    }
    if (Set-MachineName $drive) { return $true }
    $null = & "${drive}capw.ps1" -Source task
    Write-FirstBootLog "the loader ended with $LASTEXITCODE"
    return $LASTEXITCODE -eq 0
}

for ($attempt = 1; $attempt -le $attempts; $attempt++) {
    try {
        if ($Install) { Install-FirstBoot }
        if ($Install -or (Start-Bootstrap)) { exit 0 }
    } catch {
        Write-FirstBootLog "$($_.Exception.Message) $($_.ScriptStackTrace)"
        # A command that fails makes Setup fail; SetupComplete.cmd tries again.
        if ($Install) { exit 0 }
    }
    # The Task Scheduler does not start a task again that ends with an error.
    if ($attempt -lt $attempts) { Start-Sleep -Seconds 60 }
}
exit 1
