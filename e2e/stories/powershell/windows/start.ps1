# Starts a script of ours as Windows starts it, with the stand-ins loaded: start.ps1 SCRIPT [-Name value | -Switch]…
. C:\stand-in\stand-ins.ps1
$script = $args[0]
$rest = @($args | Select-Object -Skip 1)
$named = @{}
for ($at = 0; $at -lt $rest.Count; $at++) {
    $name = ([string] $rest[$at]).TrimStart('-')
    if ($at + 1 -lt $rest.Count -and -not ([string] $rest[$at + 1]).StartsWith('-')) {
        $at++
        $named[$name] = $rest[$at]
    } else {
        $named[$name] = $true
    }
}
& $script @named
exit $LASTEXITCODE
