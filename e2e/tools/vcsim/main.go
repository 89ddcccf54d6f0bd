// A vCenter for the tests of the driver: govmomi's simulator. It is stricter than the simulator alone: a request whose elements are
// unknown, or in another order than in VMware's definition, is refused, as a vCenter does and the simulator does not.
//
// Commands come on standard input, one JSON object a line, and are answered by one line. They are carried out by govmomi's own client:
// what they read is an independent view of what the driver made.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/simulator"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	login := flag.String("login", "capw:secret", "user:password that is accepted")
	certificate := flag.String("certificate", "", "certificate that clients are shown, PEM")
	key := flag.String("key", "", "its key")
	directory := flag.String("guests", "", "where capw guests looks for VMs; without it they have no guests")
	flag.Parse()

	model := simulator.VPX()
	model.Machine = 1
	if *directory != "" {
		// As slow as a vCenter at its fastest: what a VM is between two calls can be seen from outside.
		model.DelayConfig.MethodDelay = map[string]int{"ReconfigVM_Task": 100, "PowerOnVM_Task": 100, "Destroy_Task": 100}
	}
	check(model.Create())
	defer model.Remove()
	inner, err := url.Parse("https://" + *login + "@127.0.0.1:0")
	check(err)
	model.Service.Listen = inner
	model.Service.TLS = new(tls.Config)
	model.Service.RegisterEndpoints = true
	server := model.Service.NewServer()
	defer server.Close()

	ctx := context.Background()
	client, err := govmomi.NewClient(ctx, server.URL, true)
	check(err)
	vcenter := &vcenter{
		ctx: ctx, client: client, registry: model.Service.Context.Map, login: inner.User,
		requests: map[string]int{}, withheld: map[string]string{}, templates: map[string]string{},
	}
	check(vcenter.prepare())

	if *directory != "" {
		it := &guests{ctx: *model.Service.Context, client: client.Client, directory: *directory, known: map[string]*guest{}}
		go it.run()
	}

	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: server.URL.Host})
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 64}
	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	check(err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	check(err)
	go func() { check(http.Serve(listener, vcenter.front(proxy))) }()
	fmt.Println(listener.Addr().String())

	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		answer, err := vcenter.carryOut(lines.Bytes())
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		text, err := json.Marshal(answer)
		check(err)
		fmt.Println(string(text))
	}
}
