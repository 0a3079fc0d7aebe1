package origin

import (
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/converge-engine/converge/intent/charts"
)

// netrc is what the file that git and curl read says of a host. Without a file, or a word of the host in it, there is nothing.
func netrc(host string, env func(string) string) (transport.AuthMethod, error) {
	user, password, found, err := charts.Netrc(host, env)
	if err != nil || !found {
		return nil, err
	}
	return &githttp.BasicAuth{Username: user, Password: password}, nil
}
