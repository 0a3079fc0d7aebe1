package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Listen is an annotation of a Service: an address of this machine, such as 127.0.0.1:8080, whose connections go to a
// ready endpoint of the Service's first port, each to another. Its pods must run as processes that listen on
// $(POD_IP), a variable from the field status.podIP.
const Listen = "kubelab/listen"

// doors are the addresses listened on, one for each Service that wants one.
type doors struct {
	*agent
	mu   sync.Mutex
	open map[types.UID]door
}

type door struct {
	address  string
	listener net.Listener
}

func (d *doors) see(ctx context.Context, service *corev1.Service) {
	address := service.Annotations[Listen]
	d.mu.Lock()
	before := d.open[service.UID]
	d.mu.Unlock()
	if before.address == address {
		return
	}
	d.close(service.UID)
	if address == "" {
		return
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		d.kubelet.Event(service, corev1.EventTypeWarning, "FailedListen", err.Error())
		return
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	d.mu.Lock()
	d.open[service.UID] = door{address, listener}
	d.mu.Unlock()
	go d.accept(ctx, service.Namespace, service.Name, listener)
}

func (d *doors) close(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if before, found := d.open[uid]; found {
		before.listener.Close()
		delete(d.open, uid)
	}
}

func (d *doors) accept(ctx context.Context, namespace, name string, listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer connection.Close()
			if err := d.connect(ctx, namespace, name, connection); err != nil && ctx.Err() == nil {
				fmt.Fprintf(d.errors, "service %s/%s: %v\n", namespace, name, err)
			}
		}()
	}
}

func (d *doors) connect(ctx context.Context, namespace, name string, from net.Conn) error {
	endpoints, err := d.endpoints(ctx, namespace, name)
	if err != nil {
		return err
	}
	if len(endpoints) == 0 {
		return errors.New("no ready endpoint")
	}
	to, err := new(net.Dialer).DialContext(ctx, "tcp", endpoints[rand.IntN(len(endpoints))])
	if err != nil {
		return err
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(to, from) // either side may go away at any time
		_ = to.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(from, to) // as above
	return nil
}

// endpoints are the loopback addresses of the ready ones.
func (d *doors) endpoints(ctx context.Context, namespace, name string) ([]string, error) {
	slices, err := d.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, slice := range slices.Items {
		if len(slice.Ports) == 0 || slice.Ports[0].Port == nil {
			continue
		}
		port := strconv.Itoa(int(*slice.Ports[0].Port))
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				addresses = append(addresses, net.JoinHostPort(strings.Replace(endpoint.Addresses[0], podNetwork, loopbackNetwork, 1), port))
			}
		}
	}
	return addresses, nil
}
