package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// logEnded is added to a log's name for the file that says that nothing more will be written.
const logEnded = ".ended"

// logPoll is how often a log that is followed is read.
const logPoll = 50 * time.Millisecond

func (r *run) logFile(container string, attempt int) string {
	return logFile(r.dir, container, attempt)
}

func logFile(dir, container string, attempt int) string {
	return filepath.Join(dir, "containers", fmt.Sprintf("%s.%d.log", container, attempt))
}

// serveLogs answers what the API server asks a kubelet for a container's log, over TLS with a certificate that it does
// not check, and returns the port.
func (a *agent) serveLogs(ctx context.Context) (int32, error) {
	cert, key, err := certutil.GenerateSelfSignedCertKey(nodeAddress, nil, nil)
	if err != nil {
		return 0, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return 0, err
	}
	listener, err := net.Listen("tcp", nodeAddress+":0")
	if err != nil {
		return 0, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", a.serveLog)
	server := &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.ServeTLS(listener, "", "") }() // it ends with the program
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return int32(listener.Addr().(*net.TCPAddr).Port), nil
}

// serveLog knows the parameters previous, tailLines, limitBytes and follow, and leaves out what asks for times.
func (a *agent) serveLog(w http.ResponseWriter, request *http.Request) {
	dir := a.dir
	for _, part := range []string{"namespace", "pod"} {
		if !filepath.IsLocal(request.PathValue(part)) {
			http.Error(w, "no such "+part, http.StatusNotFound)
			return
		}
		dir = filepath.Join(dir, request.PathValue(part))
	}
	container, query := request.PathValue("container"), request.URL.Query()
	attempt := newestLog(dir, container)
	if query.Get("previous") == "true" {
		attempt--
	}
	file, err := os.Open(logFile(dir, container, attempt))
	if err != nil {
		http.Error(w, fmt.Sprintf("container %q is waiting to start, or has no such log", container), http.StatusBadRequest)
		return
	}
	defer file.Close()
	content, err := io.ReadAll(file)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if lines, err := strconv.Atoi(query.Get("tailLines")); err == nil {
		content = tail(content, lines)
	}
	if limit, err := strconv.Atoi(query.Get("limitBytes")); err == nil {
		content = content[:min(limit, len(content))]
	}
	if _, err := w.Write(content); err == nil && query.Get("follow") == "true" {
		follow(request.Context(), w, file)
	}
}

// newestLog is the number of the last attempt that has a log; -1 when none has.
func newestLog(dir, container string) int {
	for attempt := 0; ; attempt++ {
		if _, err := os.Stat(logFile(dir, container, attempt)); err != nil {
			return attempt - 1
		}
	}
}

func tail(content []byte, lines int) []byte {
	end := len(bytes.TrimSuffix(content, []byte("\n")))
	for ; lines > 0 && end >= 0; lines-- {
		end = bytes.LastIndexByte(content[:end], '\n')
	}
	if lines > 0 || end < 0 {
		return content
	}
	return content[min(end+1, len(content)):]
}

// follow sends what is added to a log until its container has ended.
func follow(ctx context.Context, w http.ResponseWriter, log *os.File) {
	flush := func() {
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
	}
	for {
		_, stat := os.Stat(log.Name() + logEnded) // checked before reading, so that the end is read
		if _, err := io.Copy(w, log); err != nil {
			return
		}
		flush()
		if stat == nil || !pause(ctx, logPoll) {
			return
		}
	}
}
