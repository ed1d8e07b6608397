;;; emacs.el --- acp.el as a client: a tool that asks, a refusal, a cancelled turn, the session in a second process -*- lexical-binding: t -*-
;; Usage: emacs -Q --batch -L FOLDER-OF-ACP.EL -l emacs.el PARLOR FOLDER

(require 'acp)
(require 'map)

(defvar peer-parlor (pop command-line-args-left))
(defvar peer-folder (pop command-line-args-left))
(defvar peer-updates nil "The updates of the present process, the last first.")
(defvar peer-answer nil "The option that permission requests are answered with.")
(defvar peer-asked 0 "How many permissions were requested.")

(defun peer-check (holds what)
  "Fail with WHAT and the updates unless HOLDS."
  (unless holds
    (error "%s; updates: %S" what (reverse peer-updates))))

(defun peer-text (kind)
  "The text of all updates of KIND."
  (mapconcat (lambda (update) (map-nested-elt update '(content text)))
             (seq-filter (lambda (update) (equal (map-elt update 'sessionUpdate) kind)) (reverse peer-updates))
             ""))

(defun peer-has-status (status)
  "Whether a tool call has STATUS."
  (seq-some (lambda (update) (equal (map-elt update 'status) status)) peer-updates))

(defun peer-wait-until (what test)
  "Wait until TEST holds, which WHAT describes."
  (with-timeout (60 (peer-check nil (concat "no " what)))
    (while (not (funcall test))
      (accept-process-output nil 0.01))))

(defun peer-start ()
  "Start parlor and initialize the connection."
  (setq peer-updates nil)
  (let ((client (acp-make-client :command peer-parlor :command-params '("stdio" "acp"))))
    (acp-subscribe-to-notifications
     :client client
     :on-notification (lambda (notification)
                        (when (equal (map-elt notification 'method) "session/update")
                          (push (map-nested-elt notification '(params update)) peer-updates))))
    (acp-subscribe-to-requests
     :client client
     :on-request (lambda (request)
                   (when (equal (map-elt request 'method) "session/request_permission")
                     (setq peer-asked (1+ peer-asked))
                     (acp-send-response
                      :client client
                      :response (acp-make-session-request-permission-response
                                 :request-id (map-elt request 'id) :option-id peer-answer)))))
    (let ((answer (acp-send-request
                   :client client :sync t
                   :request (acp-make-initialize-request
                             :protocol-version 1 :client-info '((name . "acp.el") (version . "1"))))))
      (peer-check (equal (map-elt answer 'protocolVersion) 1) "another version"))
    client))

(defun peer-prompt (client session text)
  "Prompt SESSION of CLIENT with TEXT and return why the turn ended."
  (map-elt (acp-send-request
            :client client :sync t
            :request (acp-make-session-prompt-request
                      :session-id session :prompt `(((type . "text") (text . ,text)))))
           'stopReason))

(defun peer-stop (client)
  "Close the input of CLIENT and wait until parlor has ended by itself."
  (let ((process (map-elt client :process)))
    (process-send-eof process)
    (peer-wait-until "end of parlor" (lambda () (not (process-live-p process))))
    (peer-check (equal (process-exit-status process) 0) "parlor failed"))
  (acp-shutdown :client client))

(let* ((client (peer-start))
       (session (map-elt (acp-send-request
                          :client client :sync t
                          :request (acp-make-session-new-request :cwd peer-folder))
                         'sessionId))
       (reason nil))
  (setq peer-answer "once")
  (peer-check (equal (peer-prompt client session "!echo from the tool") "end_turn") "the turn did not end")
  (peer-check (and (= peer-asked 1) (peer-has-status "completed")) "the call was not allowed and completed")
  (peer-check (string-match-p "from the tool" (peer-text "agent_message_chunk")) "no output")

  (setq peer-answer "deny" peer-updates nil)
  (peer-check (equal (peer-prompt client session "!echo refused") "end_turn") "the turn did not end")
  (peer-check (and (= peer-asked 2) (peer-has-status "failed") (not (peer-has-status "completed")))
              "the call was not refused")

  (setq peer-updates nil)
  (acp-send-request
   :client client
   :request (acp-make-session-prompt-request
             :session-id session :prompt '(((type . "text") (text . "/wait 600"))))
   :on-success (lambda (answer) (setq reason (map-elt answer 'stopReason)))
   :on-failure (lambda (failure) (setq reason (format "%S" failure))))
  (peer-wait-until "text" (lambda () (not (string-empty-p (peer-text "agent_message_chunk")))))
  (acp-send-notification
   :client client :notification (acp-make-session-cancel-notification :session-id session))
  (peer-wait-until "answer of the cancelled prompt" (lambda () reason))
  (peer-check (equal reason "cancelled") (format "the turn ended with %s" reason))
  (peer-stop client)

  (setq client (peer-start))
  (acp-send-request
   :client client :sync t
   :request (acp-make-session-load-request :session-id session :cwd peer-folder))
  (peer-check (string-match-p "!echo from the tool.*!echo refused.*/wait 600" (peer-text "user_message_chunk"))
              "the history has not all prompts")
  (peer-check (and (peer-has-status "completed") (peer-has-status "failed")) "the history has not all calls")
  (peer-check (equal (peer-prompt client session "/say and again") "end_turn") "the turn did not end")
  (peer-check (string-suffix-p "and again" (peer-text "agent_message_chunk")) "no answer")
  (peer-stop client))

(princ "acp: acp.el held its conversation\n")
;;; emacs.el ends here
