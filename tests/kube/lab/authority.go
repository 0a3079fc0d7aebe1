package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// The certificates and keys of a cluster, by the names of their files.
const (
	serverIdentity    = "apiserver"
	adminIdentity     = "admin"      // people and tests
	componentIdentity = "components" // the controllers and the agent
	tokenIdentity     = "tokens"     // signs service accounts' tokens; a key alone
)

// lifetime of the certificates: that of a lab, amply.
const lifetime = 30 * 24 * time.Hour

// authority issues the certificates of one cluster. Its own key is never written.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate("kubelab "+name, nil)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key}, nil
}

// certificate is valid from an hour ago, for clocks that differ.
func certificate(name string, groups []string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(lifetime),
	}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue returns a certificate and its key as PEM, for a server on the loopback device and for clients.
func (a *authority) issue(name string, groups ...string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := certificate(name, groups)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	// The API server wants a token key in just this form.
	privateDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: privateDER}), nil
}

func (c *cluster) authorityFile() string { return c.path("pki", "ca.crt") }

func (c *cluster) certFile(identity string) string { return c.path("pki", identity+".crt") }

func (c *cluster) keyFile(identity string) string { return c.path("pki", identity+".key") }

// writeIdentities writes what the components read from files.
func (c *cluster) writeIdentities() error {
	if err := os.WriteFile(c.authorityFile(), c.ca.pem(), 0o600); err != nil {
		return err
	}
	for identity, groups := range map[string][]string{
		serverIdentity:    nil,
		tokenIdentity:     nil,
		adminIdentity:     {"system:masters"},
		componentIdentity: {"system:masters"},
	} {
		cert, key, err := c.ca.issue("kubelab:"+identity, groups...)
		if err != nil {
			return fmt.Errorf("certificate of %s: %w", identity, err)
		}
		if err := os.WriteFile(c.certFile(identity), cert, 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(c.keyFile(identity), key, 0o600); err != nil {
			return err
		}
	}
	return nil
}
