package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

func (c *cluster) componentKubeconfig() string { return c.path("pki", "components.kubeconfig") }

func (c *cluster) writeComponentKubeconfig() error {
	config := api.NewConfig()
	if err := c.addTo(config, componentIdentity); err != nil {
		return err
	}
	return clientcmd.WriteToFile(*config, c.componentKubeconfig())
}

// writeKubeconfig makes a file with a context for each cluster appear at once and whole: it is what others wait for.
func writeKubeconfig(path string, clusters []*cluster) error {
	config := api.NewConfig()
	for _, c := range clusters {
		if err := c.addTo(config, adminIdentity); err != nil {
			return err
		}
	}
	if err := clientcmd.WriteToFile(*config, path+".new"); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// addTo adds a context that holds all in itself, named after the cluster. The first becomes the current one.
func (c *cluster) addTo(config *api.Config, identity string) error {
	cert, err := os.ReadFile(c.certFile(identity))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(c.keyFile(identity))
	if err != nil {
		return err
	}
	user := c.name + "-" + identity
	config.Clusters[c.name] = &api.Cluster{Server: c.server(), CertificateAuthorityData: c.ca.pem()}
	config.AuthInfos[user] = &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts[c.name] = &api.Context{Cluster: c.name, AuthInfo: user}
	if config.CurrentContext == "" {
		config.CurrentContext = c.name
	}
	return nil
}

// httpClient asks the API server as the admin, over a connection of its own each time: the server may be restarted.
func (c *cluster) httpClient() (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(c.certFile(adminIdentity), c.keyFile(adminIdentity))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.ca.cert)
	return &http.Client{
		Timeout: 2 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
		},
	}, nil
}

func isReady(ctx context.Context, client *http.Client, server string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}
