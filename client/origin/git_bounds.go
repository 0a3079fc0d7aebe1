package origin

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-git/v5/plumbing/transport/client"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// maxDownload is the limit of one download from a server, in bytes.
const maxDownload = 256 << 20

var errTooLarge = fmt.Errorf("the download exceeds %d MiB", maxDownload>>20)

// boundHTTP limits the HTTP responses of git servers. go-git has one client per scheme.
var boundHTTP = sync.OnceFunc(func() {
	c := githttp.NewClient(&http.Client{Transport: boundedTransport{http.DefaultTransport}})
	client.InstallProtocol("https", c)
	client.InstallProtocol("http", c)
})

type boundedTransport struct{ http.RoundTripper }

func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = &boundedBody{response.Body, maxDownload}
	}
	return response, err
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(data []byte) (int, error) {
	n, err := b.ReadCloser.Read(data)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// bounded is a file system with a size limit, for any transport.
type bounded struct {
	billy.Filesystem
	limit   int64 // bytes
	written atomic.Int64
}

func (b *bounded) file(f billy.File, err error) (billy.File, error) {
	if err != nil {
		return nil, err
	}
	return &boundedFile{f, b}, nil
}

// Create, OpenFile and TempFile count the bytes written.
func (b *bounded) Create(name string) (billy.File, error) { return b.file(b.Filesystem.Create(name)) }

// OpenFile is like Create.
func (b *bounded) OpenFile(name string, flag int, mode os.FileMode) (billy.File, error) {
	return b.file(b.Filesystem.OpenFile(name, flag, mode))
}

// TempFile is like Create.
func (b *bounded) TempFile(dir, prefix string) (billy.File, error) {
	return b.file(b.Filesystem.TempFile(dir, prefix))
}

type boundedFile struct {
	billy.File
	of *bounded
}

func (f *boundedFile) Write(data []byte) (int, error) {
	if f.of.written.Add(int64(len(data))) > f.of.limit {
		return 0, errTooLarge
	}
	return f.File.Write(data)
}
