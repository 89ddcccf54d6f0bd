# Starts the bootstrap on Windows without cloudbase-init. -Install, which Windows Setup runs from the drive and builders of images
# run once, puts this script on the disk with a task for every start of the machine. The task waits until Setup is over, finds the
# drive with the label unattendCD and runs the loader in it; the last step of the bootstrap removes the task.
# It never restarts the machine while Setup runs: that would leave Windows unusable.
param([switch] $Install, [switch] $Start, [switch] $DisableAdministrator)
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$root = 'C:\ProgramData\capw'
$copy = "$root\capw-firstboot.ps1"
$task = 'capw-firstboot'

function Write-FirstBootLog([string] $Text) {
    [System.IO.File]::AppendAllText("$env:SystemRoot\Temp\capw-firstboot.log", "$([System.DateTime]::UtcNow.ToString('o')) $Text`r`n")
}

function Install-FirstBoot {
    $security = New-Object System.Security.AccessControl.DirectorySecurity
    $security.SetSecurityDescriptorSddlForm('D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)', [System.Security.AccessControl.AccessControlSections]::Access)
    [void] [System.IO.Directory]::CreateDirectory($root)
    [System.IO.Directory]::SetAccessControl($root, $security)
    if ($PSCommandPath -ne $copy) { [System.IO.File]::WriteAllBytes($copy, [System.IO.File]::ReadAllBytes($PSCommandPath)) }

    $arguments = "-NoProfile -NonInteractive -ExecutionPolicy RemoteSigned -File $copy"
    if ($DisableAdministrator) { $arguments = "$arguments -DisableAdministrator" }
    # A second way to the same end, where the Task Scheduler does not work during Setup. It may not restart the machine: the task does.
    $setup = "$env:SystemRoot\Setup\Scripts\SetupComplete.cmd"
    [void] [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($setup))
    $line = "powershell.exe $arguments -Install -Start"
    if (-not [System.IO.File]::Exists($setup) -or -not [System.IO.File]::ReadAllText($setup).Contains($line)) {
        [System.IO.File]::AppendAllText($setup, "`r`n$line`r`n")
    }
    $definition = @{
        TaskName = $task; Force = $true
        Action = New-ScheduledTaskAction -Execute 'powershell.exe' -Argument $arguments
        Trigger = New-ScheduledTaskTrigger -AtStartup
        Principal = New-ScheduledTaskPrincipal -UserId 'S-1-5-18' -LogonType ServiceAccount -RunLevel Highest
        Settings = New-ScheduledTaskSettingsSet -RestartCount 3 -RestartInterval (New-TimeSpan -Minutes 1) -ExecutionTimeLimit (New-TimeSpan -Hours 2)
    }
    $null = Register-ScheduledTask @definition
    if ($Start) { Start-ScheduledTask -TaskName $task }
}

function Get-SetupValue([string] $Key, [string] $Name) {
    $property = (Get-ItemProperty -LiteralPath $Key).PSObject.Properties[$Name]
    if ($null -eq $property) { return '' }
    return [string] $property.Value
}

function Wait-Setup {
    $end = [System.DateTime]::UtcNow.AddHours(1)
    while ([System.DateTime]::UtcNow -lt $end) {
        $state = Get-SetupValue 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State' 'ImageState'
        if ($state -eq 'IMAGE_STATE_COMPLETE' -and (Get-SetupValue 'HKLM:\SYSTEM\Setup' 'SystemSetupInProgress') -eq '0') { return }
        Start-Sleep -Seconds 2
    }
    throw 'Windows Setup is not over after an hour'
}

# The drive's root, or $null: an image that is being built has none.
function Find-Drive {
    for ($try = 0; $try -lt 60; $try++) {
        foreach ($drive in [System.IO.DriveInfo]::GetDrives()) {
            if ($drive.IsReady -and $drive.VolumeLabel -eq 'unattendCD' -and [System.IO.File]::Exists("$($drive.Name)capw.ps1")) { return $drive.Name }
        }
        Start-Sleep -Seconds 2
    }
    return $null
}

# Setup has named the machine unless the image was not sysprepped. Returns whether a restart is on its way.
function Set-MachineName([string] $Drive) {
    $meta = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText("${Drive}meta-data"))
    $property = $meta.PSObject.Properties['local-hostname']
    if ($null -eq $property -or $property.Value -ieq $env:COMPUTERNAME) { return $false }
    $asked = "$root\name-asked"
    if ([System.IO.File]::Exists($asked) -and [System.IO.File]::ReadAllText($asked) -ieq $property.Value) {
        # Once is enough: the bootstrap says what is wrong with the name.
        return $false
    }
    [System.IO.File]::WriteAllText($asked, $property.Value)
    Rename-Computer -NewName $property.Value -Force
    Write-FirstBootLog "restart for the name $($property.Value)"
    & shutdown.exe /r /t 5
    return $true
}

try {
    if ($Install) {
        Install-FirstBoot
        exit 0
    }
    Wait-Setup
    $drive = Find-Drive
    if ($null -eq $drive) {
        Write-FirstBootLog 'there is no drive with the label unattendCD'
        exit 0
    }
    if ($DisableAdministrator) {
        $account = @(Get-CimInstance -ClassName Win32_UserAccount -Filter 'LocalAccount=TRUE' | Where-Object { $_.SID -like 'S-1-5-21-*-500' })[0]
        Disable-LocalUser -SID $account.SID
    }
    if (Set-MachineName $drive) { exit 0 }
    & "${drive}capw.ps1" -Source task
    Write-FirstBootLog "the loader ended with $LASTEXITCODE"
    exit 0
} catch {
    Write-FirstBootLog "$($_.Exception.Message) $($_.ScriptStackTrace)"
    # A command that fails makes Setup fail; SetupComplete.cmd tries again.
    if ($Install) { exit 0 }
    exit 1
}
