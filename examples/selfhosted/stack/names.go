package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const ttl = 60 // seconds

// zone contains the records of a nameserver: addresses by name.
type zone struct {
	mu     sync.Mutex
	origin string
	names  map[string]string
	path   string
}

// answerNames answers for a zone on the port of a nameserver, and accepts updates of it (RFC 2136).
func answerNames(w wish) (end func(), err error) {
	z := &zone{origin: dns.Fqdn(w.Zone), names: map[string]string{}, path: file(w.Service, ".zone")}
	b, err := os.ReadFile(z.path)
	if err == nil {
		err = json.Unmarshal(b, &z.names)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:"+w.Port)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+w.Port)
	if err != nil {
		return nil, err
	}
	servers := []*dns.Server{{PacketConn: packets, Handler: z, MsgAcceptFunc: accept}, {Listener: listener, Handler: z, MsgAcceptFunc: accept}}
	for _, s := range servers {
		go func() { _ = s.ActivateAndServe() }() // it ends with the process
	}
	return func() {
		for _, s := range servers {
			_ = s.Shutdown() // it ends with the process
		}
	}, nil
}

// accept accepts updates, too.
func accept(h dns.Header) dns.MsgAcceptAction {
	if opcode := int(h.Bits>>11) & 0xF; opcode == dns.OpcodeUpdate {
		return dns.MsgAccept
	}
	return dns.DefaultMsgAcceptFunc(h)
}

// ServeDNS implements dns.Handler.
func (z *zone) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	m := new(dns.Msg)
	m.SetReply(r)
	switch q := r.Question; {
	case len(q) != 1 || !dns.IsSubDomain(z.origin, q[0].Name):
		m.Rcode = dns.RcodeRefused
	case r.Opcode == dns.OpcodeUpdate:
		m.Rcode = z.update(r.Ns)
	case q[0].Qtype == dns.TypeAXFR:
		z.transfer(m)
	default:
		z.find(m, q[0])
	}
	_ = w.WriteMsg(m) // the client may be gone
}

func (z *zone) find(m *dns.Msg, q dns.Question) {
	m.Authoritative = true
	name := strings.ToLower(q.Name)
	address, known := z.names[name]
	switch {
	case !known:
		m.Rcode = dns.RcodeNameError
	case q.Qtype == dns.TypeA:
		m.Answer = append(m.Answer, record(name, address))
	}
}

func record(name, address string) dns.RR {
	return &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}, A: net.ParseIP(address)}
}

// transfer sends the whole zone, between two copies of its start of authority.
func (z *zone) transfer(m *dns.Msg) {
	soa := &dns.SOA{Hdr: dns.RR_Header{Name: z.origin, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl}, Ns: z.origin, Mbox: z.origin, Serial: 1}
	m.Answer = append(m.Answer, soa)
	for name, address := range z.names {
		m.Answer = append(m.Answer, record(name, address))
	}
	m.Answer = append(m.Answer, soa)
}

// update executes an update as a whole.
func (z *zone) update(all []dns.RR) (rcode int) {
	for _, rr := range all {
		h := rr.Header()
		name := strings.ToLower(h.Name)
		a, isA := rr.(*dns.A)
		switch {
		case !dns.IsSubDomain(z.origin, name):
			return dns.RcodeNotZone
		case h.Class == dns.ClassANY:
			delete(z.names, name)
		case h.Class == dns.ClassINET && isA:
			z.names[name] = a.A.String()
		default:
			return dns.RcodeNotImplemented
		}
	}
	b, err := json.Marshal(z.names)
	if err == nil {
		err = write(z.path, b)
	}
	if err != nil {
		return dns.RcodeServerFailure
	}
	return dns.RcodeSuccess
}

// names makes the DNS names of services point to their addresses: one update adds the missing records and removes the surplus ones.
func names() error {
	in, err := read()
	if err != nil {
		return err
	}
	wanted := map[string]string{}
	for _, s := range in.Services {
		for _, name := range s.Names {
			for _, t := range s.Targets {
				wanted[dns.Fqdn(strings.ToLower(name))] = t.Address
			}
		}
	}
	server, origin := "127.0.0.1:"+os.Getenv("PORT"), dns.Fqdn(os.Getenv("ZONE"))
	var there map[string]string
	if err := within(func() (err error) { there, err = zoneOf(server, origin); return err }); err != nil {
		return tryLater{err}
	}
	m := new(dns.Msg)
	m.SetUpdate(origin)
	var said []string
	for name, address := range wanted {
		if there[name] != address {
			m.RemoveRRset([]dns.RR{record(name, address)})
			m.Insert([]dns.RR{record(name, address)})
			said = append(said, name+" is "+address)
		}
	}
	for name, address := range there {
		if wanted[name] == "" {
			m.RemoveName([]dns.RR{record(name, address)})
			said = append(said, name+" is gone")
		}
	}
	if len(said) == 0 {
		fmt.Println("nothing changes")
		return nil
	}
	slices.Sort(said)
	answer, _, err := (&dns.Client{Net: "tcp", Timeout: 5 * time.Second}).Exchange(m, server)
	if err != nil {
		return tryLater{err}
	}
	if answer.Rcode != dns.RcodeSuccess {
		return fmt.Errorf("the nameserver refuses: %s", dns.RcodeToString[answer.Rcode])
	}
	fmt.Println(strings.Join(said, "\n"))
	return nil
}

// zoneOf requests all records of a nameserver.
func zoneOf(server, origin string) (map[string]string, error) {
	m := new(dns.Msg)
	m.SetAxfr(origin)
	parts, err := (&dns.Transfer{DialTimeout: 5 * time.Second}).In(m, server)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for part := range parts {
		if part.Error != nil {
			return nil, part.Error
		}
		for _, rr := range part.RR {
			if a, is := rr.(*dns.A); is {
				all[strings.ToLower(a.Hdr.Name)] = a.A.String()
			}
		}
	}
	return all, nil
}
