package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probeEvery is how often a process is probed until it is ready. Once ready it stays so.
const probeEvery = 100 * time.Millisecond

// untilProbed waits until the readiness probe of a process succeeds, and tells of its first failure. Probes of kinds
// other than httpGet and tcpSocket succeed.
func (a *attempt) untilProbed(ctx context.Context, probe *corev1.Probe) bool {
	pause(ctx, time.Duration(probe.InitialDelaySeconds)*time.Second)
	for reported := false; ctx.Err() == nil; pause(ctx, probeEvery) {
		err := a.probe(ctx, probe)
		if err == nil {
			return true
		}
		if !reported {
			reported = true
			a.warn(a.slot, "Unhealthy", "Readiness probe failed: "+err.Error())
		}
	}
	return false
}

func (a *attempt) probe(ctx context.Context, probe *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(probe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	switch {
	case probe.HTTPGet != nil:
		return a.probeHTTP(ctx, probe.HTTPGet)
	case probe.TCPSocket != nil:
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", a.probeAddress(probe.TCPSocket.Host, probe.TCPSocket.Port))
		if err != nil {
			return err
		}
		return connection.Close()
	default:
		return nil
	}
}

func (a *attempt) probeHTTP(ctx context.Context, get *corev1.HTTPGetAction) error {
	url := fmt.Sprintf("%s://%s/%s", strings.ToLower(string(get.Scheme)), a.probeAddress(get.Host, get.Port), strings.TrimPrefix(get.Path, "/"))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	for _, header := range get.HTTPHeaders {
		request.Header.Add(header.Name, header.Value)
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as a kubelet's probes
	}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", response.StatusCode)
	}
	return nil
}

// probeAddress is the pod's own, unless the probe names a host.
func (a *attempt) probeAddress(host string, port intstr.IntOrString) string {
	if host == "" {
		host = a.loopback
	}
	number := port.IntValue()
	for _, p := range a.slot.spec.Ports {
		if port.Type == intstr.String && p.Name == port.StrVal {
			number = int(p.ContainerPort)
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(number))
}
