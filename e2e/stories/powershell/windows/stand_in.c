// One program that stands for those that Wine lacks or that a test must be able to break: it acts by its own file name.
//
// Each call is written to C:\stand-in\calls.log. A line of C:\stand-in\rules breaks a program:
//   program|part of its arguments|exit code|milliseconds|times (-1: always)|child (1: leaves a child behind that keeps its output open)
// C:\stand-in\restart-by-msiexec makes it restart Windows: "midway" in its work, where the test kills everything, or "after" it, with 1641.
// C:\stand-in\die-SERVICE makes a service end while it starts; C:\stand-in\slow-SERVICE holds the milliseconds until it runs.
#include <winsock2.h>
#include <windows.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HOME "C:\\stand-in\\"
#define SERVICES "SYSTEM\\CurrentControlSet\\Services\\"

static char program[64], arguments[8192], service[128];
static int argc_;
static char **argv_;
static SERVICE_STATUS_HANDLE handle;
static HANDLE stopped;

// The text of a file below HOME, or `otherwise`.
static char *text(const char *name, const char *otherwise) {
    char path[512];
    snprintf(path, sizeof path, HOME "%s", name);
    FILE *file = fopen(path, "rb");
    char *found = calloc(1, 65536);
    if (!file) return strcpy(found, otherwise);
    fread(found, 1, 65535, file);
    fclose(file);
    return found;
}

static void write_path(const char *path, const char *content) {
    FILE *file = fopen(path, "wb");
    if (!file) return;
    fputs(content, file);
    fclose(file);
}

static void write_text(const char *name, const char *content) {
    char path[512];
    snprintf(path, sizeof path, HOME "%s", name);
    write_path(path, content);
}

static void note(const char *format, const char *what, const char *more) {
    char line[9000];
    DWORD written;
    int length = snprintf(line, sizeof line, format, what, more);
    HANDLE file = CreateFileA(HOME "calls.log", FILE_APPEND_DATA, FILE_SHARE_READ | FILE_SHARE_WRITE, 0, OPEN_ALWAYS, 0, 0);
    if (file == INVALID_HANDLE_VALUE) return;
    WriteFile(file, line, length, &written, 0);
    CloseHandle(file);
}

static void set_value(const char *key, const char *name, DWORD type, const void *data, DWORD length) {
    HKEY opened;
    RegCreateKeyExA(HKEY_LOCAL_MACHINE, key, 0, 0, 0, KEY_ALL_ACCESS, 0, &opened, 0);
    RegSetValueExA(opened, name, 0, type, data, length);
    RegCloseKey(opened);
}

static void set_string(const char *key, const char *name, const char *value) { set_value(key, name, REG_SZ, value, strlen(value) + 1); }
static void set_number(const char *key, const char *name, DWORD value) { set_value(key, name, REG_DWORD, &value, 4); }

static int is(const char *name) { return !strcmp(program, name); }
static int has(const char *part) { return strstr(arguments, part) != 0; }
static int exists(const char *path) { return GetFileAttributesA(path) != INVALID_FILE_ATTRIBUTES; }

// What follows `prefix` in the first argument that begins with it.
static const char *option(const char *prefix) {
    for (int i = 1; i < argc_; i++)
        if (!strncmp(argv_[i], prefix, strlen(prefix))) return argv_[i] + strlen(prefix);
    return "";
}

// --- services

static void status(DWORD state) {
    SERVICE_STATUS now = {SERVICE_WIN32_OWN_PROCESS, state, state == SERVICE_RUNNING ? SERVICE_ACCEPT_STOP | SERVICE_ACCEPT_SHUTDOWN : 0, 0, 0, 0, 3000};
    SetServiceStatus(handle, &now);
}

static DWORD WINAPI control(DWORD code, DWORD type, void *data, void *context) {
    if (code == SERVICE_CONTROL_STOP || code == SERVICE_CONTROL_SHUTDOWN) SetEvent(stopped);
    return 0;
}

static DWORD WINAPI serve_pipe(void *unused) {
    for (;;) {
        HANDLE pipe = CreateNamedPipeA("\\\\.\\pipe\\containerd-containerd", PIPE_ACCESS_DUPLEX, 0, 255, 4096, 4096, 0, 0);
        if (pipe == INVALID_HANDLE_VALUE) {
            Sleep(100);
            continue;
        }
        ConnectNamedPipe(pipe, 0);
        CloseHandle(pipe);
    }
}

static DWORD WINAPI serve_health(void *port) {
    WSADATA data;
    WSAStartup(0x202, &data);
    SOCKET server = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {0};
    address.sin_family = AF_INET;
    address.sin_port = htons((u_short)(INT_PTR)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, (char *)&one, sizeof one);
    if (bind(server, (void *)&address, sizeof address)) note("%s%s\n", "the port of the health check is taken", "");
    listen(server, 5);
    for (;;) {
        char request[4096];
        const char *answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        SOCKET client = accept(server, 0, 0);
        recv(client, request, sizeof request, 0);
        send(client, answer, strlen(answer), 0);
        closesocket(client);
    }
}

static void WINAPI service_main(DWORD count, LPSTR *words) {
    char name[200], number[32];
    strncpy(service, words[0], sizeof service - 1);
    handle = RegisterServiceCtrlHandlerExA(service, control, 0);
    status(SERVICE_START_PENDING);
    snprintf(name, sizeof name, "pids\\%s", service);
    snprintf(number, sizeof number, "%lu", GetCurrentProcessId());
    write_text(name, number);
    note("service start %s%s\n", service, "");
    if (is("containerd")) CreateThread(0, 0, serve_pipe, 0, 0, 0);
    if (!strcmp(service, "kubelet")) CreateThread(0, 0, serve_health, (void *)10248, 0, 0);
    snprintf(name, sizeof name, "slow-%s", service);
    Sleep(atoi(text(name, "300")));
    snprintf(name, sizeof name, "die-%s", service);
    if (text(name, "")[0]) {
        SERVICE_STATUS dead = {SERVICE_WIN32_OWN_PROCESS, SERVICE_STOPPED, 0, ERROR_SERVICE_SPECIFIC_ERROR, 7, 0, 0};
        SetServiceStatus(handle, &dead);
        return;
    }
    status(SERVICE_RUNNING);
    WaitForSingleObject(stopped, INFINITE);
    note("service stop %s%s\n", service, "");
    status(SERVICE_STOPPED);
}

static int run_as_service(void) {
    SERVICE_TABLE_ENTRYA table[] = {{"", service_main}, {0, 0}};
    stopped = CreateEventA(0, TRUE, FALSE, 0);
    if (StartServiceCtrlDispatcherA(table)) return 0;
    fprintf(stderr, "not started as a service: %lu\n", GetLastError());
    return ERROR_FAILED_SERVICE_CONTROLLER_CONNECT;
}

static int start_service(const char *name) {
    SC_HANDLE manager = OpenSCManagerA(0, 0, SC_MANAGER_CONNECT);
    SC_HANDLE found = OpenServiceA(manager, name, SERVICE_START);
    return found && (StartServiceA(found, 0, 0) || GetLastError() == ERROR_SERVICE_ALREADY_RUNNING);
}

// --- rules

// Ends the program as a rule says, if one does.
static void obey_rules(void) {
    for (char *line = strtok(text("rules", ""), "\r\n"); line; line = strtok(0, "\r\n")) {
        char who[64], part[200], used[300], number[32];
        int code, milliseconds, times, child = 0;
        if (sscanf(line, "%63[^|]|%199[^|]|%d|%d|%d|%d", who, part, &code, &milliseconds, &times, &child) < 5) continue;
        if (strcmp(who, program) || !has(part)) continue;
        snprintf(used, sizeof used, "used-%s-%d", who, code);
        int count = atoi(text(used, "0"));
        if (times >= 0 && count >= times) continue;
        snprintf(number, sizeof number, "%d", count + 1);
        write_text(used, number);
        printf("something was said\n");
        fprintf(stderr, "error: made to fail\n");
        fflush(stdout);
        fflush(stderr);
        if (child) {
            // It inherits standard output and error, and keeps them open after this program's end.
            STARTUPINFOA start = {sizeof start};
            PROCESS_INFORMATION started;
            start.dwFlags = STARTF_USESTDHANDLES;
            start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
            start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
            char line[] = HOME "bin\\linger.exe";
            CreateProcessA(0, line, 0, 0, TRUE, 0, 0, 0, &start, &started);
            break;
        }
        Sleep(milliseconds);
        exit(code);
    }
}

// Waits until the test kills it: at each command line that was not held before if there is C:\\stand-in\\hold-each, at each call if
// C:\\stand-in\\hold-PROGRAM holds a text.
static void hold(void) {
    char line[9000], name[100];
    snprintf(line, sizeof line, "%s %s\n", program, arguments);
    snprintf(name, sizeof name, "hold-%s", program);
    if (exists(HOME "hold-each")) {
        if (strstr(text("held.log", ""), line)) return;
        FILE *file = fopen(HOME "held.log", "ab");
        fputs(line, file);
        fclose(file);
    } else if (!text(name, "")[0]) {
        return;
    }
    write_text("held", line);
    Sleep(120000);
}

// --- programs

static int sc(void) {
    char key[300];
    if (argc_ < 3) return ERROR_INVALID_PARAMETER;
    snprintf(key, sizeof key, SERVICES "%s", argv_[2]);
    if (!strcmp(argv_[1], "config")) return set_number(key, "Start", 2), 0;
    if (!strcmp(argv_[1], "triggerinfo")) {
        // The key itself stays, without triggers.
        HKEY empty;
        RegDeleteTreeA(HKEY_LOCAL_MACHINE, strcat(key, "\\TriggerInfo"));
        if (!RegCreateKeyA(HKEY_LOCAL_MACHINE, key, &empty)) RegCloseKey(empty);
        return 0;
    }
    if (!strcmp(argv_[1], "failureflag")) return set_number(key, "FailureActionsOnNonCrashFailures", atoi(argv_[3])), 0;
    if (!strcmp(argv_[1], "failure") && argc_ > 6) {
        DWORD data[64] = {atoi(argv_[4]), 0, 0, 0, 20};
        int length = 5, actions = 0;
        for (char *part = strtok(argv_[6], "/"); part && length < 62; part = strtok(0, "/"), actions++) {
            data[length++] = 1;
            data[length++] = atoi(strtok(0, "/"));
        }
        data[3] = actions;
        return set_value(key, "FailureActions", REG_BINARY, data, length * 4), 0;
    }
    return ERROR_SERVICE_DOES_NOT_EXIST;
}

static int netsh(void) {
    char name[100], value[4096];
    const char *protocol = option("protocol=");
    if (has("winhttp set")) return write_text("winhttp", arguments), 0;
    if (has("winhttp show")) return puts(text("winhttp", "Direct access")), 0;
    snprintf(name, sizeof name, has("dynamicportrange") ? "dynamic-%s" : "excluded-%s", protocol);
    if (has("set dynamicportrange")) {
        snprintf(value, sizeof value, "%s %s", option("startport="), option("numberofports="));
        return write_text(name, value), puts("Ok.\n"), 0;
    }
    if (has("show dynamicportrange")) {
        int start, count;
        sscanf(text(name, "49152 16384"), "%d %d", &start, &count);
        printf("\nProtocol %s Dynamic Port Range\n---------------------------------\nStart Port      : %d\nNumber of Ports : %d\n\n", protocol, start, count);
        return 0;
    }
    if (has("add excludedportrange")) {
        int start = atoi(option("startport="));
        snprintf(value, sizeof value, "%s     %d       %d\n", text(name, ""), start, start + atoi(option("numberofports=")) - 1);
        return write_text(name, value), 0;
    }
    if (has("show excludedportrange")) {
        printf("\nProtocol %s Port Exclusion Ranges\n\nStart Port    End Port\n----------    --------\n%s", protocol, text(name, ""));
        return 0;
    }
    return 1;
}

static int curl(void) {
    char date[100];
    time_t now = time(0) + atoi(text("clock-offset", "0"));
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime(&now));
    printf("HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ndate: %s\r\n\r\n", date);
    return 0;
}

static int bcdedit(void) {
    if (has("/set")) return write_text("hypervisor", "1"), 0;
    printf("\nWindows Boot Loader\n-------------------\nidentifier              {current}\n%s",
           text("hypervisor", "")[0] ? "hypervisorlaunchtype    Auto\n" : "");
    return 0;
}

static int dism(void) {
    char name[200];
    snprintf(name, sizeof name, "features\\%s", option("/FeatureName:"));
    Sleep(200);
    write_text(name, has("/Enable-Feature") ? "EnablePending" : "DisablePending");
    return ERROR_SUCCESS_REBOOT_REQUIRED;
}

static void make_directories(char *path) {
    for (char *at = path + 3; *at; at++)
        if (*at == '\\') {
            *at = 0;
            CreateDirectoryA(path, 0);
            *at = '\\';
        }
}

// Plain ustar only: the tests write such archives.
static int tar(void) {
    const char *archive = "", *into = "";
    int strip = 0;
    for (int i = 1; i + 1 < argc_; i++) {
        if (!strcmp(argv_[i], "-f")) archive = argv_[++i];
        else if (!strcmp(argv_[i], "-C")) into = argv_[++i];
        else if (!strcmp(argv_[i], "--strip-components")) strip = atoi(argv_[++i]);
    }
    FILE *from = fopen(archive, "rb");
    if (!from) return 2;
    char header[512], block[65536], path[600];
    while (fread(header, 1, 512, from) == 512 && header[0]) {
        long length = strtol(header + 124, 0, 8);
        char *name = header;
        for (int i = 0; name && i < strip; i++) name = strchr(name, '/') ? strchr(name, '/') + 1 : 0;
        if (!name || !*name || header[156] == '5') {
            fseek(from, (length + 511) / 512 * 512, SEEK_CUR);
            continue;
        }
        snprintf(path, sizeof path, "%s\\%s", into, name);
        for (char *at = path; *at; at++)
            if (*at == '/') *at = '\\';
        make_directories(path);
        FILE *to = fopen(path, "wb");
        if (!to) return fprintf(stderr, "error: cannot write %s\n", path), 1;
        for (long left = length; left > 0;) {
            size_t count = fread(block, 1, left > (long)sizeof block ? sizeof block : left, from);
            if (!count) return 1;
            fwrite(block, 1, count, to);
            left -= count;
        }
        fclose(to);
        fseek(from, (512 - length % 512) % 512, SEEK_CUR);
    }
    return 0;
}

static int kubeadm(void) {
    const char *joined = "C:\\etc\\kubernetes\\kubelet.conf", *begun = "C:\\etc\\kubernetes\\bootstrap-kubelet.conf";
    if (has("reset")) return remove(joined), remove(begun), 0;
    if (exists(joined) || exists(begun)) {
        fprintf(stderr, "[ERROR FileAvailable--etc-kubernetes-kubelet.conf]: C:\\etc\\kubernetes\\kubelet.conf already exists\n"
                        "To see the stack trace of this error execute with --v=5 or higher\n");
        return 1;
    }
    puts("[preflight] ok");
    write_path(begun, "x");
    write_path("C:\\var\\lib\\kubelet\\config.yaml", "x");
    CreateDirectoryA("C:\\var\\lib\\kubelet\\pki", 0);
    if (!start_service("kubelet")) printf("[kubelet-start] warning: %lu\n", GetLastError());
    Sleep(1000);
    write_path(joined, "x");
    puts("This node has joined the cluster");
    return 0;
}

static int msiexec(void) {
    // It reads quotes in its own way.
    if (strstr(GetCommandLineA(), "NAME=") && !strstr(GetCommandLineA(), " NAME=\"a \"\"b\"\" c\"")) return 1639;
    SC_HANDLE manager = OpenSCManagerA(0, 0, SC_MANAGER_CREATE_SERVICE);
    CreateServiceA(manager, "agent", "agent", SERVICE_ALL_ACCESS, SERVICE_WIN32_OWN_PROCESS, SERVICE_AUTO_START, SERVICE_ERROR_NORMAL,
                   HOME "bin\\svc.exe", 0, 0, 0, 0, 0);
    char *restart = text("restart-by-msiexec", "");
    if (restart[0]) {
        remove(HOME "restart-by-msiexec");
        write_text("shutdown", "msiexec");
        write_text("shutdown-asked", "1");
    }
    if (!strcmp(restart, "midway")) {
        write_text("held", "msiexec\n");
        Sleep(120000);
    }
    start_service("agent");
    Sleep(600);
    return restart[0] ? ERROR_SUCCESS_REBOOT_INITIATED : ERROR_SUCCESS_REBOOT_REQUIRED;
}

static int certutil(void) {
    char key[300];
    const char blob = 1;
    snprintf(key, sizeof key, "SOFTWARE\\Microsoft\\SystemCertificates\\ROOT\\Certificates\\%s", text("thumbprint", "none"));
    return set_value(key, "Blob", REG_BINARY, &blob, 1), 0;
}

static int w32tm(void) {
    if (has("/config") && *option("/manualpeerlist:")) set_string(SERVICES "W32Time\\Parameters", "NtpServer", option("/manualpeerlist:"));
    if (has("/syncfromflags:manual")) set_string(SERVICES "W32Time\\Parameters", "Type", "NTP");
    // The clock is right after the server has been asked, unless a test says that it stays wrong.
    if (has("/resync") && !text("clock-stays", "")[0]) {
        write_text("clock", "+0");
        write_text("clock-offset", "0");
    }
    return 0;
}

static int route(void) {
    char value[300];
    if (argc_ > 8) {
        snprintf(value, sizeof value, "%s,%s,%s,%s", argv_[3], argv_[5], argv_[6], argv_[8]);
        set_string(SERVICES "Tcpip\\Parameters\\PersistentRoutes", value, "");
    }
    return puts(" OK!"), 0;
}

static int crictl(void) {
    if (has("pull")) return Sleep(200), write_text("image", "1"), 0;
    if (has("inspecti")) return text("image", "")[0] ? 0 : 1;
    return 0;
}

static int shut_down(void) {
    write_text("shutdown", arguments);
    if (text("shutdown-asked", "")[0]) return ERROR_SHUTDOWN_IN_PROGRESS;
    return write_text("shutdown-asked", "1"), 0;
}

static int taskkill(void) {
    HANDLE process = OpenProcess(PROCESS_TERMINATE, 0, atoi(argv_[argc_ - 1]));
    return process && TerminateProcess(process, 1) ? 0 : 128;
}

int main(int argc, char **argv) {
    char path[512];
    argc_ = argc;
    argv_ = argv;
    GetModuleFileNameA(0, path, sizeof path);
    strncpy(program, strrchr(path, '\\') + 1, sizeof program - 1);
    if (strrchr(program, '.')) *strrchr(program, '.') = 0;
    strlwr(program);
    for (int i = 1; i < argc; i++) {
        if (i > 1) strcat(arguments, " ");
        strncat(arguments, argv[i], 2000);
    }
    if (is("linger")) return Sleep(30000), 0;
    if (is("hold") && argc > 3) {
        // Keeps a file to itself for some milliseconds, once a runner has its lock.
        for (int tries = 0; tries < 6000; tries++, Sleep(10)) {
            HANDLE lock = CreateFileA(argv[3], GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE, 0, OPEN_EXISTING, 0, 0);
            if (lock == INVALID_HANDLE_VALUE && GetLastError() == ERROR_SHARING_VIOLATION) break;
            if (lock != INVALID_HANDLE_VALUE) CloseHandle(lock);
        }
        HANDLE file = CreateFileA(argv[1], GENERIC_READ, 0, 0, OPEN_EXISTING, 0, 0);
        note("held %s %d\n", argv[1], file != INVALID_HANDLE_VALUE);
        Sleep(atoi(argv[2]));
        return 0;
    }
    if (is("hold")) {
        // As a scanner: others may read the file, but neither write nor replace it.
        HANDLE file = CreateFileA(argv[1], GENERIC_READ, FILE_SHARE_READ, 0, OPEN_EXISTING, 0, 0);
        puts(file == INVALID_HANDLE_VALUE ? "it cannot be held" : "held");
        fflush(stdout);
        return Sleep(INFINITE), 0;
    }
    note("%s %s\n", program, arguments);
    hold();
    obey_rules();
    if (is("containerd") || is("kube-log-runner") || is("kube-proxy") || is("svc")) return run_as_service();
    if (is("tzutil")) return set_string("SYSTEM\\CurrentControlSet\\Control\\TimeZoneInformation", "TimeZoneKeyName", argc > 2 ? argv[2] : ""), 0;
    if (is("sc")) return sc();
    if (is("w32tm")) return w32tm();
    if (is("certutil")) return certutil();
    if (is("curl")) return curl();
    if (is("dism")) return dism();
    if (is("bcdedit")) return bcdedit();
    if (is("netsh")) return netsh();
    if (is("djoin")) return write_text("domain-pending", "corp.example.com"), 0;
    if (is("route")) return route();
    if (is("msiexec")) return msiexec();
    if (is("tar")) return tar();
    if (is("kubeadm")) return kubeadm();
    if (is("crictl")) return crictl();
    if (is("register")) return set_string("SOFTWARE\\Example", "Registered", "1"), 0;
    if (is("shutdown")) return shut_down();
    if (is("taskkill")) return taskkill();
    return 0;
}
