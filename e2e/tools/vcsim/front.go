package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// element is any XML.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
}

func (e element) attribute(space, name string) string {
	for _, attr := range e.Attrs {
		if attr.Name.Local == name && (space == "" || strings.HasSuffix(attr.Name.Space, space)) {
			return attr.Value
		}
	}
	return ""
}

// front refuses what a vCenter would not read, and counts the rest.
func (v *vcenter) front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.URL.Path == "/sdk" {
			err = v.admit(body, r.Header.Get("SOAPAction"))
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, `<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"><soapenv:Body><soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>not well-formed: %s</faultstring><detail><InvalidRequestFault xmlns="urn:vim25"/></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>`, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if v.libraryTemplateOf(w, r) {
			return
		}
		if task := v.refuses(body); task != "" {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, `<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"><soapenv:Body><soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>Another task is already in progress.</faultstring><detail><TaskInProgressFault xmlns="urn:vim25"><task type="Task">%s</task></TaskInProgressFault></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>`, task)
			return
		}
		if v.cancels(body) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"><soapenv:Body><soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>The operation is not supported on the object.</faultstring><detail><NotSupportedFault xmlns="urn:vim25"/></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>`)
			return
		}
		if bytes.Contains(body, []byte("<CloneVM_Task ")) {
			answer, done := httptest.NewRecorder(), v.cloneBegins(body)
			// The task is named whether or not its caller still waits for it.
			next.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
			done(answer.Body.String())
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
			return
		}
		if bytes.Contains(body, []byte("<HasPrivilegeOnEntities ")) || bytes.Contains(body, []byte("<CreateFilter ")) {
			answer := httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			text := v.withhold(body, answer.Body.String())
			v.calm(text)
			w.WriteHeader(answer.Code)
			_, _ = io.WriteString(w, text)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withhold takes the privileges out of an answer that are withheld from the folder of the request: the simulator grants everything.
func (v *vcenter) withhold(request []byte, answer string) string {
	v.lock.Lock()
	defer v.lock.Unlock()
	for folder, privilege := range v.withheld {
		if bytes.Contains(request, []byte(">"+folder+"<")) {
			about := "<privId>" + privilege + "</privId><isGranted>"
			answer = strings.ReplaceAll(answer, about+"true", about+"false")
		}
	}
	return answer
}

var (
	name    = regexp.MustCompile(`<name>([^<]+)<`)
	task    = regexp.MustCompile(`<returnval type="Task">([^<]+)<`)
	destroy = regexp.MustCompile(`<Destroy_Task [^>]*><_this type=['"]VirtualMachine['"]>([^<]+)<`)
	cancel  = regexp.MustCompile(`<CancelTask [^>]*><_this type=['"]Task['"]>([^<]+)<`)
)

// clone is one that was asked for.
type clone struct {
	// Of the VM that it makes.
	name string
	// Empty until the simulator has named it: its clone may be at work before.
	task string
}

// cloneBegins notes a clone; what it returns is told the answer, with its task.
func (v *vcenter) cloneBegins(request []byte) func(string) {
	begun := &clone{}
	if named := name.FindSubmatch(request); named != nil {
		begun.name = string(named[1])
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	v.clones = append(v.clones, begun)
	return func(answer string) {
		v.lock.Lock()
		defer v.lock.Unlock()
		begun.task = "none"
		if named := task.FindStringSubmatch(answer); named != nil {
			begun.task = named[1]
		}
	}
}

// refuses names what still clones the VM that is to be destroyed, as a vCenter does.
func (v *vcenter) refuses(request []byte) string {
	wanted := destroy.FindSubmatch(request)
	if wanted == nil {
		return ""
	}
	return v.making(types.ManagedObjectReference{Type: "VirtualMachine", Value: string(wanted[1])})
}

// making names the clone at work that makes this VM: the simulator's ends the program when its VM is gone.
func (v *vcenter) making(reference types.ManagedObjectReference) string {
	vm, known := v.registry.Get(reference).(*simulator.VirtualMachine)
	if !known {
		return ""
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	for _, clone := range v.clones {
		if clone.name == vm.Name && v.isAtWork(clone) {
			return "task-" + clone.name
		}
	}
	return ""
}

// cancels tells whether a clone at work is to be cancelled. The simulator would call it failed and go on with it; as a vCenter does with
// tasks that cannot be cancelled, this refuses.
func (v *vcenter) cancels(request []byte) bool {
	wanted := cancel.FindSubmatch(request)
	if wanted == nil {
		return false
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	for _, clone := range v.clones {
		if clone.task == string(wanted[1]) && v.isAtWork(clone) {
			return true
		}
	}
	return false
}

func (v *vcenter) isAtWork(clone *clone) bool {
	task, known := v.registry.Get(types.ManagedObjectReference{Type: "Task", Value: clone.task}).(*simulator.Task)
	isAtWork := known && (task.Info.State == types.TaskInfoStateRunning || task.Info.State == types.TaskInfoStateQueued)
	return isAtWork || clone.task == ""
}

var filter = regexp.MustCompile(`<returnval type="PropertyFilter">([^<]+)<`)

// calm keeps a filter from a deadlock of the simulator: told of a change of the folder, or of the TaskManager, that it begins at, it waits
// for its own lock with that of the object held, and whoever waits for updates takes the two the other way round. What is new there is
// found all the same.
func (v *vcenter) calm(answer string) {
	if made := filter.FindStringSubmatch(answer); made != nil {
		v.registry.AddHandler(calm{types.ManagedObjectReference{Type: "PropertyFilter", Value: made[1]}})
	}
}

// calm stands for a filter where objects tell of their changes.
type calm struct{ self types.ManagedObjectReference }

func (c calm) Reference() types.ManagedObjectReference { return c.self }

func (calm) PutObject(*simulator.Context, mo.Reference) {}

func (calm) UpdateObject(*simulator.Context, mo.Reference, []types.PropertyChange) {}

func (calm) RemoveObject(*simulator.Context, types.ManagedObjectReference) {}

func (v *vcenter) admit(body []byte, action string) error {
	var envelope struct {
		Body struct {
			Request element `xml:",any"`
		} `xml:"Body"`
	}
	if err := xml.Unmarshal(body, &envelope); err != nil {
		return err
	}
	request := envelope.Body.Request
	if request.XMLName.Space != "urn:vim25" || action == "" {
		return errors.New("namespace or SOAPAction")
	}
	kind, known := types.TypeFunc()(request.XMLName.Local + "RequestType")
	if !known {
		kind, known = types.TypeFunc()(request.XMLName.Local)
	}
	if !known {
		// Methods whose name ends in _Task have types without that end.
		kind, known = types.TypeFunc()(strings.TrimSuffix(request.XMLName.Local, "_Task") + "RequestType")
	}
	if !known {
		return fmt.Errorf("method %s", request.XMLName.Local)
	}
	v.lock.Lock()
	v.requests[request.XMLName.Local]++
	v.lock.Unlock()
	return ordered(request, kind)
}

// fields lists the elements of a type in the order of its definition, those of its base first.
func fields(kind reflect.Type) (names []string, kinds []reflect.Type) {
	for i := range kind.NumField() {
		field := kind.Field(i)
		if field.Anonymous {
			more, of := fields(field.Type)
			names, kinds = append(names, more...), append(kinds, of...)
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("xml"), ",")
		if name == "" || name == "-" || strings.HasPrefix(options, "attr") || strings.HasPrefix(name, "http") {
			continue
		}
		names, kinds = append(names, name), append(kinds, field.Type)
	}
	return names, kinds
}

// ordered says what is unknown or out of order, in e and below it.
func ordered(e element, kind reflect.Type) error {
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
		kind = kind.Elem()
	}
	if name := e.attribute("XMLSchema-instance", "type"); strings.HasPrefix(name, "xsd:") {
		return nil
	} else if name != "" {
		named, known := types.TypeFunc()(name)
		if !known {
			return fmt.Errorf("type %s of %s", name, e.XMLName.Local)
		}
		if kind.Kind() == reflect.Interface && !reflect.PointerTo(named).Implements(kind) {
			return fmt.Errorf("%s cannot be a %s", e.XMLName.Local, name)
		}
		kind = named
	}
	if kind.Kind() != reflect.Struct || len(e.Children) == 0 {
		return nil
	}
	names, kinds := fields(kind)
	at := 0
	for _, child := range e.Children {
		for at < len(names) && names[at] != child.XMLName.Local {
			at++
		}
		if at == len(names) {
			return fmt.Errorf("%s in %s (%s): unknown or too late", child.XMLName.Local, e.XMLName.Local, kind.Name())
		}
		if err := ordered(child, kinds[at]); err != nil {
			return err
		}
	}
	return nil
}
