/* service.exe: what a guest's plan asks of the service manager (Wine's own sc.exe cannot change or show a configuration).
     service.exe set NAME auto|demand RESET DELAYS COMMAND-LINE [DEPENDENCY...]   creates the service or changes it; it is started
                           again DELAYS (milliseconds, with commas) after a failure, RESET seconds without one forget those before
     service.exe show NAME       prints state, start type, reset and delays, command line, dependencies: a line each
     service.exe start NAME      returns when it runs
     service.exe stop NAME       returns when it is stopped
     service.exe wait NAME       returns when it runs no more, and prints its exit code
     service.exe delete NAME
   Exit code 0, or 1 and the Windows error in words. Start and stop wait 60 s at most. Wine keeps failure actions and dependencies in
   the registry and does not act on them: who runs the guest does. "auto" is delayed, or Wine would start it before its dependencies. */
#include <stdio.h>
#include <wchar.h>
#include <windows.h>

#define ACTIONS 16

static int fail(const WCHAR *what) {
    wprintf(L"%ls: error %lu\n", what, GetLastError());
    return 1;
}

static HKEY key(const WCHAR *name) {
    WCHAR path[512];
    HKEY key = NULL;
    swprintf(path, 512, L"SYSTEM\\CurrentControlSet\\Services\\%ls", name);
    RegOpenKeyExW(HKEY_LOCAL_MACHINE, path, 0, KEY_ALL_ACCESS, &key);
    return key;
}

static void number(HKEY key, const WCHAR *name, DWORD value) { RegSetValueExW(key, name, 0, REG_DWORD, (BYTE *)&value, sizeof value); }

/* Wine goes on calling a service running whose process has ended, when a child of it talked to the service manager. */
static SERVICE_STATUS_PROCESS status_of(SC_HANDLE service) {
    SERVICE_STATUS_PROCESS status = {0};
    DWORD need;
    QueryServiceStatusEx(service, SC_STATUS_PROCESS_INFO, (BYTE *)&status, sizeof status, &need);
    if (status.dwCurrentState == SERVICE_STOPPED || !status.dwProcessId) return status;
    HANDLE process = OpenProcess(SYNCHRONIZE, FALSE, status.dwProcessId);
    if (!process || WaitForSingleObject(process, 0) == WAIT_OBJECT_0) {
        status.dwWin32ExitCode = status.dwCurrentState == SERVICE_STOP_PENDING ? NO_ERROR : ERROR_PROCESS_ABORTED;
        status.dwCurrentState = SERVICE_STOPPED;
    }
    if (process) CloseHandle(process);
    return status;
}

static int reach(SC_HANDLE service, DWORD wanted) {
    for (int tries = 0; tries < 600; tries++) {
        SERVICE_STATUS_PROCESS status = status_of(service);
        if (status.dwCurrentState == wanted) return 0;
        if (wanted == SERVICE_RUNNING && status.dwCurrentState == SERVICE_STOPPED) {
            wprintf(L"it ended with %lu\n", status.dwWin32ExitCode);
            return 1;
        }
        Sleep(100);
    }
    wprintf(L"it took more than 60 s\n");
    return 1;
}

static int set(SC_HANDLE manager, int count, WCHAR **words) {
    const WCHAR *name = words[0], *line = words[4];
    int automatic = !wcscmp(words[1], L"auto");
    DWORD start = automatic ? SERVICE_AUTO_START : SERVICE_DEMAND_START;
    SC_HANDLE service = OpenServiceW(manager, name, SERVICE_ALL_ACCESS);
    if (service) {
        if (!ChangeServiceConfigW(service, SERVICE_NO_CHANGE, start, SERVICE_NO_CHANGE, line, NULL, NULL, NULL, NULL, NULL, NULL))
            return fail(L"ChangeServiceConfig");
    } else if (!CreateServiceW(manager, name, name, SERVICE_ALL_ACCESS, SERVICE_WIN32_OWN_PROCESS, start, SERVICE_ERROR_NORMAL, line,
                               NULL, NULL, NULL, NULL, NULL))
        return fail(L"CreateService");
    HKEY settings = key(name);
    if (!settings) return fail(L"the service's key");
    number(settings, L"DelayedAutostart", automatic);
    number(settings, L"FailureActionsOnNonCrashFailures", 1);
    /* As the service manager of Windows keeps them: five numbers, then kind (1: restart) and milliseconds of each. */
    DWORD actions[5 + 2 * ACTIONS] = {wcstoul(words[2], NULL, 10), 0, 0, 0, 20};
    for (WCHAR *at = words[3]; *at && actions[3] < ACTIONS; actions[3]++) {
        actions[5 + 2 * actions[3]] = 1;
        actions[6 + 2 * actions[3]] = wcstoul(at, &at, 10);
        if (*at) at++;
    }
    RegSetValueExW(settings, L"FailureActions", 0, REG_BINARY, (BYTE *)actions, 20 + 8 * actions[3]);
    if (count > 5) {
        static WCHAR needs[2048];
        WCHAR *end = needs;
        for (int i = 5; i < count && end + wcslen(words[i]) + 2 < needs + 2048; i++) end = wcscpy(end, words[i]) + wcslen(words[i]) + 1;
        RegSetValueExW(settings, L"DependOnService", 0, REG_MULTI_SZ, (BYTE *)needs, (DWORD)(end + 1 - needs) * sizeof *needs);
    }
    RegFlushKey(settings);
    return 0;
}

static int show(SC_HANDLE service, const WCHAR *name) {
    static BYTE buffer[32768];
    static const WCHAR *states[] = {L"", L"stopped", L"starting", L"stopping", L"running", L"continuing", L"pausing", L"paused"};
    QUERY_SERVICE_CONFIGW *found = (void *)buffer;
    DWORD need, actions[5 + 2 * ACTIONS] = {0}, length = sizeof actions;
    static WCHAR needs[2048];
    if (!QueryServiceConfigW(service, found, sizeof buffer, &need)) return fail(L"QueryServiceConfig");
    HKEY settings = key(name);
    if (RegQueryValueExW(settings, L"FailureActions", NULL, NULL, (BYTE *)actions, &length)) actions[3] = 0;
    wprintf(L"%ls\n%ls\n%lu ", states[status_of(service).dwCurrentState & 7], found->dwStartType == SERVICE_AUTO_START ? L"auto" : L"demand", actions[0]);
    for (DWORD i = 0; i < actions[3] && i < ACTIONS; i++) wprintf(i ? L",%lu" : L"%lu", actions[6 + 2 * i]);
    wprintf(L"\n%ls\n", found->lpBinaryPathName);
    length = sizeof needs - sizeof *needs;
    if (!RegQueryValueExW(settings, L"DependOnService", NULL, NULL, (BYTE *)needs, &length))
        for (WCHAR *one = needs; *one; one += wcslen(one) + 1) wprintf(L"%ls\n", one);
    return 0;
}

static int wait_for_end(SC_HANDLE service) {
    SERVICE_STATUS_PROCESS status;
    while ((status = status_of(service)).dwCurrentState != SERVICE_STOPPED) Sleep(500);
    wprintf(L"%lu\n", status.dwWin32ExitCode);
    return 0;
}

int wmain(int count, WCHAR **words) {
    const WCHAR *verb = count > 1 ? words[1] : L"";
    if (count < (wcscmp(verb, L"set") ? 3 : 7)) {
        wprintf(L"usage: service.exe set NAME auto|demand RESET DELAYS COMMAND-LINE [DEPENDENCY...]; show|start|stop|wait|delete NAME\n");
        return 1;
    }
    SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_ALL_ACCESS);
    if (!manager) return fail(L"OpenSCManager");
    if (!wcscmp(verb, L"set")) return set(manager, count - 2, words + 2);
    SC_HANDLE service = OpenServiceW(manager, words[2], SERVICE_ALL_ACCESS);
    if (!service) return fail(L"OpenService");
    if (!wcscmp(verb, L"show")) return show(service, words[2]);
    if (!wcscmp(verb, L"wait")) return wait_for_end(service);
    if (!wcscmp(verb, L"delete")) return DeleteService(service) ? 0 : fail(L"DeleteService");
    if (!wcscmp(verb, L"start")) {
        if (!StartServiceW(service, 0, NULL) && GetLastError() != ERROR_SERVICE_ALREADY_RUNNING) return fail(L"StartService");
        return reach(service, SERVICE_RUNNING);
    }
    if (!wcscmp(verb, L"stop")) {
        SERVICE_STATUS status;
        if (status_of(service).dwCurrentState == SERVICE_STOPPED) return 0;
        DWORD error = ControlService(service, SERVICE_CONTROL_STOP, &status) ? NO_ERROR : GetLastError();
        /* Wine says ERROR_BROKEN_PIPE of a process that ends before it has answered. */
        if (error && error != ERROR_SERVICE_NOT_ACTIVE && error != ERROR_BROKEN_PIPE) return fail(L"ControlService");
        return reach(service, SERVICE_STOPPED);
    }
    wprintf(L"service.exe: unknown word %ls\n", verb);
    return 1;
}
