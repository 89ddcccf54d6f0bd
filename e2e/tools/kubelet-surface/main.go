// Writes what a kubelet of each minor takes: fields of the KubeletConfiguration with their types, flags on Windows, and
// feature gates with their stage. It reads Kubernetes' sources, so nothing has to be built, and prints the JSON that is kept as
// src/bootstrap/render/kubelet/surface.json.
//
// Usage: go run . VERSION... > ../../../src/bootstrap/render/kubelet/surface.json     with e.g. 1.31.14 1.36.3; needs the module cache or a proxy.
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

type gate struct {
	stage           string
	enabled, locked bool
}

func (g gate) String() string {
	text := g.stage + " off"
	if g.enabled {
		text = g.stage + " on"
	}
	if g.locked {
		text += " locked"
	}
	return text
}

// What one minor takes.
type minor struct {
	fields map[string]string
	flags  map[string]bool
	gates  map[string]gate
}

// From which minor to which something is there.
type span struct {
	Type  string `json:"type,omitempty"`
	Since int    `json:"since"`
	Until int    `json:"until"`
}

func main() {
	log.SetFlags(0)
	versions, newest := map[string]string{}, 0
	fields, flags, stages := map[string]span{}, map[string]span{}, map[string]map[string]string{}
	for _, version := range os.Args[1:] {
		number := strings.Split(version, ".")[1]
		at, _ := strconv.Atoi(number)
		found := read(version, number)
		versions[number] = "v" + version
		for name, typ := range found.fields {
			extend(fields, name, typ, at)
		}
		if found.flags == nil {
			continue
		}
		newest = at
		for name := range found.flags {
			extend(flags, name, "", at)
		}
		for name, now := range found.gates {
			if stages[name] == nil {
				stages[name] = map[string]string{}
			}
			if last(stages[name]) != now.String() {
				stages[name][number] = now.String()
			}
		}
		for name := range stages {
			if _, known := found.gates[name]; !known && last(stages[name]) != "gone" {
				stages[name][number] = "gone"
			}
		}
	}
	fmt.Printf("{\n \"kubernetes\": %s,\n \"programs\": %d,\n", line(versions), newest)
	section("fields", fields, ",")
	section("flags", flags, ",")
	section("gates", stages, "")
	fmt.Println("}")
}

func extend(spans map[string]span, name, typ string, at int) {
	one, known := spans[name]
	if !known {
		one = span{typ, at, at}
	}
	if one.Type != typ {
		log.Printf("1.%d: %s was of type %s and is of type %s", at, name, one.Type, typ)
	}
	one.Until = at
	spans[name] = one
}

func last(stages map[string]string) string {
	newest := ""
	for number := range stages {
		if number > newest {
			newest = number
		}
	}
	return stages[newest]
}

func line(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	return string(text)
}

// One line per name, in their order.
func section[V any](title string, entries map[string]V, end string) {
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	sort.Strings(names)
	lines := make([]string, 0, len(names))
	for _, name := range names {
		lines = append(lines, fmt.Sprintf("  %s: %s", line(name), line(entries[name])))
	}
	fmt.Printf(" %q: {\n%s\n }%s\n", title, strings.Join(lines, ",\n"), end)
}

func read(version, number string) minor {
	found := minor{fields: map[string]string{}}
	staging := "v0." + strings.TrimPrefix(version, "1.")
	types := structs(module("k8s.io/kubelet", staging) + "/config/v1beta1/types.go")
	for file, prefix := range map[string]string{"logs/api/v1/types.go": "logsapi.", "tracing/api/v1/types.go": "tracingapi."} {
		for name, fields := range structs(module("k8s.io/component-base", staging) + "/" + file) {
			types[prefix+name], types[name] = fields, fields
		}
	}
	walk(types, "KubeletConfiguration", "", found.fields)
	// The newest minor's programs may not be a module yet; its types are.
	kubernetes, err := download("k8s.io/kubernetes", "v"+version)
	if err != nil {
		log.Printf("%s: no flags and gates: %v", version, err)
		return found
	}
	// Those of cobra and component-base, which no call here names.
	found.flags = map[string]bool{"help": true, "version": true, "log-flush-frequency": true}
	options := kubernetes + "/cmd/kubelet/app/options/"
	for _, file := range []string{"options.go", "osflags_windows.go", "globalflags.go", "../../../../pkg/kubelet/config/flags.go"} {
		if _, err := os.Stat(options + file); err == nil {
			flagNames(options+file, found.flags)
		}
	}
	flagNames(module("k8s.io/component-base", staging)+"/logs/api/v1/options.go", found.flags)
	found.gates = gates(kubernetes, staging, number)
	return found
}

func download(path, version string) (string, error) {
	command := exec.Command("go", "mod", "download", "-json", path+"@"+version)
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	text, err := command.Output()
	var answer struct{ Dir, Error string }
	if json.Unmarshal(text, &answer) == nil && answer.Error != "" {
		return "", fmt.Errorf("%s", answer.Error)
	}
	return answer.Dir, err
}

func module(path, version string) string {
	dir, err := download(path, version)
	if err != nil {
		log.Fatalf("%s %s: %v", path, version, err)
	}
	return dir
}

func parse(path string) *ast.File {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		log.Fatal(err)
	}
	return file
}

// Structs of a file by name.
func structs(path string) map[string]*ast.StructType {
	found := map[string]*ast.StructType{}
	ast.Inspect(parse(path), func(node ast.Node) bool {
		if spec, ok := node.(*ast.TypeSpec); ok {
			if body, ok := spec.Type.(*ast.StructType); ok {
				found[spec.Name.Name] = body
			}
		}
		return true
	})
	return found
}

// Every field of a struct with its path and type: bool, int, string, duration, list, map, object.
func walk(types map[string]*ast.StructType, name, prefix string, out map[string]string) {
	for _, field := range types[name].Fields.List {
		if field.Tag == nil {
			continue
		}
		tag, _ := strconv.Unquote(field.Tag.Value)
		_, rest, ok := strings.Cut(tag, `json:"`)
		if !ok {
			continue
		}
		name := strings.Split(rest, `"`)[0]
		key, typ := strings.Split(name, ",")[0], text(field.Type)
		inline := strings.Contains(name, ",inline") || key == ""
		switch {
		case key == "-":
		case inline && strings.HasSuffix(typ, "TypeMeta"):
			out[prefix+"apiVersion"], out[prefix+"kind"] = "string", "string"
		case inline && types[typ] != nil:
			walk(types, typ, prefix, out)
		case inline:
			log.Fatalf("%s%s: nothing is known of the type %s", prefix, name, typ)
		case strings.HasSuffix(typ, "TimeOrMetaDuration"):
			out[prefix+key] = "duration"
		case types[typ] != nil:
			out[prefix+key] = "object"
			walk(types, typ, prefix+key+".", out)
		default:
			out[prefix+key] = kind(typ)
		}
	}
}

func text(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return text(e.X)
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	case *ast.ArrayType:
		return "[]"
	case *ast.MapType:
		return "map"
	}
	return "?"
}

func kind(typ string) string {
	switch typ {
	case "[]":
		return "list"
	case "bool", "map":
		return typ
	case "int", "int32", "int64", "uint32":
		return "int"
	case "float64":
		return "number"
	case "metav1.Duration", "Duration":
		return "duration"
	case "VerbosityLevel", "logsapi.VerbosityLevel":
		return "int"
	case "VModuleConfiguration":
		return "list"
	case "resource.QuantityValue", "resource.Quantity":
		return "any"
	}
	return "string"
}

// Names of flags: the text before the description in calls like fs.StringVar(&x, "name", …).
func flagNames(path string, out map[string]bool) {
	ast.Inspect(parse(path), func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		function, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !(strings.Contains(function.Sel.Name, "Var") || function.Sel.Name == "String") {
			if name, ok := call.Fun.(*ast.Ident); !ok || !strings.HasPrefix(name.Name, "register") {
				return true
			}
		}
		for _, argument := range call.Args {
			if literal, ok := argument.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				name, _ := strconv.Unquote(literal.Value)
				if name != "" && !strings.Contains(name, " ") {
					out[strings.ReplaceAll(name, "_", "-")] = true
				}
				break
			}
			if name, ok := argument.(*ast.Ident); ok && name.Name == "logFormatFlag" {
				out["logging-format"] = true
			}
		}
		return true
	})
}

// Gates that the program of a minor knows, as they are in that minor.
func gates(kubernetes, staging, number string) map[string]gate {
	files, _ := filepath.Glob(kubernetes + "/pkg/features/*kube_features.go")
	for _, more := range []string{"apiserver", "apiextensions-apiserver", "component-base", "controller-manager", "client-go"} {
		dir := module("k8s.io/"+more, staging)
		for _, pattern := range []string{"/pkg/features/kube_features.go", "/logs/api/v1/kube_features.go", "/metrics/features/kube_features.go", "/zpages/features/kube_features.go", "/features/known_features.go", "/featuregate/feature_gate.go"} {
			some, _ := filepath.Glob(dir + pattern)
			files = append(files, some...)
		}
	}
	names, found := map[string]string{}, map[string]gate{}
	for _, path := range files {
		ast.Inspect(parse(path), func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if ok && len(spec.Values) == 1 && strings.HasSuffix(text(spec.Type), "Feature") {
				if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
					names[spec.Names[0].Name], _ = strconv.Unquote(literal.Value)
				}
			}
			return true
		})
	}
	at, _ := strconv.Atoi(number)
	for _, path := range files {
		ast.Inspect(parse(path), func(node ast.Node) bool {
			pair, ok := node.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			body, ok := pair.Value.(*ast.CompositeLit)
			key := text(pair.Key)
			key = key[strings.LastIndex(key, ".")+1:]
			if !ok || key == "?" || !(names[key] != "" || strings.Contains(text(pair.Key), "features.")) {
				return true
			}
			name := names[key]
			if name == "" {
				name = key
			}
			if len(body.Elts) == 0 {
				return true
			}
			switch body.Elts[0].(type) {
			case *ast.KeyValueExpr:
				found[name], _ = stage(body)
			case *ast.CompositeLit:
				for _, element := range body.Elts {
					if one, since := stage(element.(*ast.CompositeLit)); since <= at {
						found[name] = one
					}
				}
			}
			return false
		})
	}
	return found
}

// One FeatureSpec, and the minor from which it holds.
func stage(body *ast.CompositeLit) (gate, int) {
	one, since := gate{stage: "alpha"}, 0
	for _, element := range body.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch text(pair.Key) {
		case "Default":
			one.enabled = text(pair.Value) == "true"
		case "LockToDefault":
			one.locked = text(pair.Value) == "true"
		case "PreRelease":
			name := text(pair.Value)
			one.stage = strings.ToLower(name[strings.LastIndex(name, ".")+1:])
			if one.stage == "prealpha" {
				one.stage = "alpha"
			}
		case "Version":
			// MustParse("1.31") or MajorMinor(1, 31); version 0.0 is that of a gate that was always there.
			if call, ok := pair.Value.(*ast.CallExpr); ok {
				parts := []string{}
				for _, argument := range call.Args {
					if literal, ok := argument.(*ast.BasicLit); ok {
						parts = append(parts, strings.Split(strings.Trim(literal.Value, `"`), ".")...)
					}
				}
				if len(parts) == 2 && parts[0] == "1" {
					since, _ = strconv.Atoi(parts[1])
				}
			}
		}
	}
	return one, since
}
