package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

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
		next.ServeHTTP(w, r)
	})
}

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
