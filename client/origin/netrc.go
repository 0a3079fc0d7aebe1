package origin

import (
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/converge-engine/converge/intent/charts"
)

// netrc returns the credentials for a host from the file that git and curl read, or nil if the file or the host is missing.
func netrc(host string, env func(string) string) (transport.AuthMethod, error) {
	user, password, found, err := charts.Netrc(host, env)
	if err != nil || !found {
		return nil, err
	}
	return &githttp.BasicAuth{Username: user, Password: password}, nil
}
