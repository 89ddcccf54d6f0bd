# Puts back routes that are gone: when the container network makes its switch, the address of the machine moves to another adapter, and
# routes stay behind. Run by a task every few minutes. After a start Windows itself brings them back: they are persistent.
# Routes: PREFIX,ADDRESS,MASK,GATEWAY,METRIC, divided by |, because a task hands over one text.
param([string] $Routes, [string] $Log = 'C:\ProgramData\capw\network.log')
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

# route.exe chooses the adapter that reaches the gateway, and refuses a gateway that none reaches.
function Add-Route([string[]] $Route) {
    return & "$env:SystemRoot\System32\route.exe" ADD $Route
}

$active = @(Get-NetRoute -AddressFamily IPv4 -PolicyStore ActiveStore)
foreach ($route in $Routes.Split('|')) {
    $prefix, $address, $mask, $gateway, $metric = $route.Split(',')
    if (@($active | Where-Object { $_.DestinationPrefix -eq $prefix -and $_.NextHop -eq $gateway }).Count -gt 0) { continue }
    $said = @(Add-Route @($address, 'MASK', $mask, $gateway, 'METRIC', $metric)) -join ' '
    [System.IO.File]::AppendAllText($log, "$([System.DateTime]::UtcNow.ToString('o')) route $prefix by $gateway was gone; put back: $($said.Trim())`r`n")
}
